"""The rows of all tables: a new field here is a new column of frames, of JSON and its schema, and of tables.

See ``report.columns``.
"""
