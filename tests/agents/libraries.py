"""Sends one prompt with a library: `python libraries.py LIBRARY MODEL PROMPT`, in a Python that has it."""

import sys


def main(library: str, model: str, prompt: str) -> None:
    if library == "litellm":
        import litellm

        answer = litellm.completion(model=model, messages=[{"role": "user", "content": prompt}])
        print(answer.choices[0].message.content)
    elif library == "pydantic-ai":
        from pydantic_ai import Agent

        print(Agent(model).run_sync(prompt).output)
    elif library == "langchain":
        from langchain.chat_models import init_chat_model

        print(init_chat_model(model).invoke(prompt).text)
    elif library == "openai-agents":
        from agents import Agent, Runner

        print(Runner.run_sync(Agent("tester", model=model), prompt).final_output)
    elif library == "instructor":
        import instructor
        from pydantic import BaseModel

        class Summary(BaseModel):
            title: str

        client = instructor.from_provider(model)
        messages = [{"role": "user", "content": prompt}]
        print(client.chat.completions.create(response_model=Summary, max_tokens=500, messages=messages))


if __name__ == "__main__":
    main(*sys.argv[1:])
