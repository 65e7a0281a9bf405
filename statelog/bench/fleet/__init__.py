"""The fleet, beside Litestream, PostgresSaver, and what the storage itself takes."""
