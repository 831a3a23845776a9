# A database in memory: half a million rows, an index, groups and a join.
# needs: sqlite3
set -eu
sqlite3 :memory: <<'SQL'
CREATE TABLE item (id INTEGER PRIMARY KEY, name TEXT, size INTEGER);
WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 500000)
INSERT INTO item SELECT i, 'item ' || (i * 7919 % 500009), i * 31 % 1000 FROM n;
CREATE INDEX by_name ON item (name);
CREATE TABLE total AS SELECT size, count(*) AS items, group_concat(substr(name, 6, 3)) AS names FROM item GROUP BY size;
SELECT count(*), sum(items), sum(length(names)) FROM total;
SELECT count(*) FROM item a JOIN item b ON b.name = 'item ' || a.id;
DELETE FROM item WHERE size < 500;
SELECT count(*), sum(length(name)) FROM item;
SQL
