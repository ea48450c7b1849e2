"""A part that the toy models import: an edit here changes them."""

WIDTH = 8
