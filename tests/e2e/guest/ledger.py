"""Writes to an sqlite database without end: rows in pairs whose amounts add up to zero."""
import sqlite3

database = sqlite3.connect("/ledger.db", isolation_level=None)
database.execute("PRAGMA journal_mode=WAL")
database.execute("CREATE TABLE IF NOT EXISTS moves (pair INTEGER, amount INTEGER, padding BLOB)")
number = 0
while True:
    number += 1
    database.execute("BEGIN")
    database.execute("INSERT INTO moves VALUES (?, ?, randomblob(2000))", (number, number))
    database.execute("INSERT INTO moves VALUES (?, ?, randomblob(2000))", (number, -number))
    database.execute("COMMIT")
