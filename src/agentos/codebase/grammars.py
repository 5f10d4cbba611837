"""The languages whose definitions are extracted, each with its grammar package and tree-sitter query.

A query captures `@def`, the whole definition; `@name`, its name; and `@body`, where the signature ends. `@member` in place of
`@def` marks a name that a draft may mention but that is not shown to the model, such as an attribute assigned in a method.
"""

from dataclasses import dataclass

_PYTHON = """
(class_definition name: (identifier) @name body: (_) @body) @def
(function_definition name: (identifier) @name body: (_) @body) @def
(module (expression_statement (assignment left: (identifier) @name) @def))
(class_definition body: (block (expression_statement (assignment left: (identifier) @name) @def)))
(assignment left: (attribute object: (identifier) attribute: (identifier) @name)) @member
"""
_JAVASCRIPT = """
(class_declaration name: (_) @name body: (_) @body) @def
(function_declaration name: (_) @name body: (_) @body) @def
(generator_function_declaration name: (_) @name body: (_) @body) @def
(method_definition name: (_) @name body: (_) @body) @def
(program (lexical_declaration (variable_declarator name: (identifier) @name value: (_ body: (_) @body)) @def))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name value: (_ body: (_) @body)) @def)))
(program (lexical_declaration (variable_declarator name: (identifier) @name) @member))
(program (export_statement (lexical_declaration (variable_declarator name: (identifier) @name) @def)))
"""
_TYPESCRIPT = (
    _JAVASCRIPT
    + """
(abstract_class_declaration name: (_) @name body: (_) @body) @def
(interface_declaration name: (_) @name body: (_) @body) @def
(enum_declaration name: (_) @name body: (_) @body) @def
(type_alias_declaration name: (_) @name) @def
(interface_body (property_signature name: (_) @name) @def)
(interface_body (method_signature name: (_) @name) @def)
(public_field_definition name: (_) @name) @member
"""
)
_GO = """
(function_declaration name: (identifier) @name body: (_) @body) @def
(method_declaration name: (field_identifier) @name body: (_) @body) @def
(type_declaration (type_spec name: (type_identifier) @name) @def)
(source_file (const_declaration (const_spec name: (identifier) @name) @member))
(source_file (var_declaration (var_spec name: (identifier) @name) @member))
(field_declaration name: (field_identifier) @name) @member
(method_elem name: (field_identifier) @name) @member
"""
_RUST = """
(function_item name: (identifier) @name body: (_) @body) @def
(function_signature_item name: (identifier) @name) @def
(struct_item name: (type_identifier) @name body: (_) @body) @def
(struct_item name: (type_identifier) @name !body) @def
(enum_item name: (type_identifier) @name body: (_) @body) @def
(trait_item name: (type_identifier) @name body: (_) @body) @def
(impl_item type: (_) @name body: (_) @body) @def
(mod_item name: (identifier) @name body: (_) @body) @def
(type_item name: (type_identifier) @name) @def
(const_item name: (identifier) @name) @def
(static_item name: (identifier) @name) @def
(macro_definition name: (identifier) @name) @member
(field_declaration name: (field_identifier) @name) @member
(enum_variant name: (identifier) @name) @member
"""
_JAVA = """
(class_declaration name: (identifier) @name body: (_) @body) @def
(interface_declaration name: (identifier) @name body: (_) @body) @def
(enum_declaration name: (identifier) @name body: (_) @body) @def
(record_declaration name: (identifier) @name body: (_) @body) @def
(method_declaration name: (identifier) @name body: (_) @body) @def
(method_declaration name: (identifier) @name !body) @def
(constructor_declaration name: (identifier) @name body: (_) @body) @def
(field_declaration declarator: (variable_declarator name: (identifier) @name)) @member
(enum_constant name: (identifier) @name) @member
"""
_C = """
(function_definition declarator: (_ declarator: (identifier) @name) body: (_) @body) @def
(function_definition declarator: (pointer_declarator declarator: (_ declarator: (identifier) @name)) body: (_) @body) @def
(translation_unit (declaration declarator: (function_declarator declarator: (identifier) @name)) @def)
(struct_specifier name: (type_identifier) @name body: (_) @body) @def
(enum_specifier name: (type_identifier) @name body: (_) @body) @def
(type_definition declarator: (type_identifier) @name) @member
(preproc_def name: (identifier) @name) @member
(preproc_function_def name: (identifier) @name) @member
(field_declaration declarator: (field_identifier) @name) @member
"""
_CPP = (
    _C
    + """
(class_specifier name: (type_identifier) @name body: (_) @body) @def
(namespace_definition name: (_) @name body: (_) @body) @def
(function_definition declarator: (function_declarator declarator: (field_identifier) @name) body: (_) @body) @def
(function_definition declarator: (function_declarator declarator: (qualified_identifier name: (_) @name)) body: (_) @body) @def
(field_declaration declarator: (function_declarator declarator: (field_identifier) @name)) @def
"""
)
_C_SHARP = """
(class_declaration name: (identifier) @name body: (_) @body) @def
(interface_declaration name: (identifier) @name body: (_) @body) @def
(struct_declaration name: (identifier) @name body: (_) @body) @def
(record_declaration name: (identifier) @name) @def
(enum_declaration name: (identifier) @name body: (_) @body) @def
(method_declaration name: (identifier) @name body: (_) @body) @def
(method_declaration name: (identifier) @name !body) @def
(constructor_declaration name: (identifier) @name body: (_) @body) @def
(property_declaration name: (identifier) @name) @member
(variable_declarator name: (identifier) @name) @member
"""
_RUBY = """
(class name: (_) @name) @def
(module name: (_) @name) @def
(method name: (_) @name) @def
(singleton_method name: (_) @name) @def
(assignment left: (constant) @name) @def
(assignment left: (instance_variable) @name) @member
"""
_PHP = """
(class_declaration name: (name) @name body: (_) @body) @def
(interface_declaration name: (name) @name body: (_) @body) @def
(trait_declaration name: (name) @name body: (_) @body) @def
(enum_declaration name: (name) @name body: (_) @body) @def
(function_definition name: (name) @name body: (_) @body) @def
(method_declaration name: (name) @name body: (_) @body) @def
(method_declaration name: (name) @name !body) @def
(const_element (name) @name) @member
(property_element (variable_name (name) @name)) @member
"""


@dataclass(frozen=True, slots=True)
class Grammar:
    """A grammar package, the function in it that returns the language, and the query that finds definitions."""

    package: str
    query: str
    function: str = "language"


GRAMMARS = {
    "python": Grammar("tree_sitter_python", _PYTHON),
    "javascript": Grammar("tree_sitter_javascript", _JAVASCRIPT),
    "typescript": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_typescript"),
    "tsx": Grammar("tree_sitter_typescript", _TYPESCRIPT, "language_tsx"),
    "go": Grammar("tree_sitter_go", _GO),
    "rust": Grammar("tree_sitter_rust", _RUST),
    "java": Grammar("tree_sitter_java", _JAVA),
    "c": Grammar("tree_sitter_c", _C),
    "cpp": Grammar("tree_sitter_cpp", _CPP),
    "csharp": Grammar("tree_sitter_c_sharp", _C_SHARP),
    "ruby": Grammar("tree_sitter_ruby", _RUBY),
    "php": Grammar("tree_sitter_php", _PHP, "language_php"),
}
LANGUAGES = {
    **dict.fromkeys((".py", ".pyi"), "python"),
    **dict.fromkeys((".js", ".jsx", ".mjs", ".cjs"), "javascript"),
    **dict.fromkeys((".ts", ".mts", ".cts"), "typescript"),
    ".tsx": "tsx",
    ".go": "go",
    ".rs": "rust",
    ".java": "java",
    **dict.fromkeys((".c", ".h"), "c"),
    **dict.fromkeys((".cc", ".cpp", ".cxx", ".hpp", ".hh", ".hxx"), "cpp"),
    ".cs": "csharp",
    ".rb": "ruby",
    ".php": "php",
}
"""The language of a file by its suffix."""
