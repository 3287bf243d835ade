"""The command line: `holdproof RESOURCE METHOD`, generated from the catalogue, and a few commands written by hand."""
