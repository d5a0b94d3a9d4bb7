"""What reports of every kind share: the HTML page, pictures, words, redaction, JUnit."""
