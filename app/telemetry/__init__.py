"""What every request cost and how well its drafts were accepted: recorded, listed, summed."""
