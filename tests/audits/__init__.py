"""The audits that keep the repository true to what it says about itself."""
