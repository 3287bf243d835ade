"""Archives: snapshots as CAR files and in IPFS."""
