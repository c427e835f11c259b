"""Results for readers: pandas tables, text, charts, and HTML pages."""
