"""The vendors' wire formats, spoken by the offline server."""
