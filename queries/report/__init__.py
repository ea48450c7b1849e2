"""One profile as a page to look at: a single file that needs no network."""

from queries.report.page import report_page

__all__ = ["report_page"]
