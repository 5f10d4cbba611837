"""The vendors' wire formats, as the offline server speaks them."""
