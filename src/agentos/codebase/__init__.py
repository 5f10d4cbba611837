"""The project's code as shown to the models: collected, indexed, ranked for an issue, and used to check drafts."""
