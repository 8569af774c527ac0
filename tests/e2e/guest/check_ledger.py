"""Prints `ok ROWS` when the database of ledger.py is whole and every pair is there in full."""
import sqlite3

database = sqlite3.connect("/ledger.db")
verdict = database.execute("PRAGMA integrity_check").fetchone()[0]
rows, total = database.execute("SELECT count(*), coalesce(sum(amount), 0) FROM moves").fetchone()
odd = database.execute("SELECT count(*) FROM (SELECT pair FROM moves GROUP BY pair HAVING count(*) <> 2)").fetchone()[0]
print(f"{verdict} {rows}" if not total and not odd and rows else f"bad: {verdict}, sum {total}, {odd} odd pairs")
