"""Servers, proxies, fillers and forgers that tests, proofs and benchmarks share; none of the three is imported here."""
