"""The shared parts of all reports: the HTML page, pictures, words, redaction, JUnit."""
