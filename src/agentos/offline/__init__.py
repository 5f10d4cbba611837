"""The embedded model server: a rule machine behind the vendors' wire formats on loopback."""
