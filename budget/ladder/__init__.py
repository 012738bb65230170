"""Ladder against flat: what a promotion rule would have spent and found on a recorded stream of candidates."""
