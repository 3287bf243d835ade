"""Skills: approved files that agents act by."""
