"""What brings other programs' data in: every row kept, each with a verdict, nothing promised that was not proven."""
