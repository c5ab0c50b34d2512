"""How rows of somebody else's subset are matched with documents, as SQL. Knows tables; runs nothing.

``theirs`` has the subset's rows as `subset_rows.ROWS`; ``source`` the documents: position, crawl, id, content_hash, and
those of a release also exclusion and representative.
"""

from typing import Final

#: In a key that orders matches: added where the texts differ, so that a copy of the same text comes first.
_DIFFERS: Final = 1 << 62
#: A row of the pool that another one stands for, as a condition on columns of ``{0}``.
_IS_COPY: Final = "coalesce({0}.exclusion IN ('duplicate_content', 'near_duplicate'), false)"

#: Makes ``found``: one row each of the subset: how it was found, where, and whether its text differs from what has its id.
MATCH: Final = f"""
    CREATE TEMP TABLE found AS
    WITH by_id AS (
        SELECT t.row, min(s.position + CASE WHEN t.content_hash <> s.content_hash THEN {_DIFFERS} ELSE 0 END) AS key
        FROM theirs AS t JOIN source AS s ON s.id = t.id GROUP BY t.row
    ),
    contents AS (SELECT content_hash, min(position) AS position FROM source GROUP BY content_hash)
    SELECT t.row,
        CASE WHEN by_id.key IS NOT NULL THEN 'id' WHEN contents.position IS NOT NULL THEN 'content' END AS how,
        coalesce(by_id.key % {_DIFFERS}, contents.position) AS position,
        coalesce(by_id.key >= {_DIFFERS}, false) AS altered,
        CASE WHEN by_id.key IS NOT NULL OR contents.position IS NOT NULL THEN NULL
            WHEN NOT t.readable THEN 'unreadable'
            WHEN t.id IS NULL AND t.content_hash IS NULL THEN 'neither id nor text'
            ELSE 'in no document' END AS why_not
    FROM theirs AS t LEFT JOIN by_id USING (row)
    LEFT JOIN contents ON by_id.key IS NULL AND contents.content_hash = t.content_hash
"""

#: Makes ``standing``: of each row found the document that represents it, a copy's first or what that is a near-copy of,
#: and why that could not be selected. ``near`` is a query for crawl, id, to_crawl and to_id.
STANDING: Final = f"""
    CREATE TEMP TABLE standing AS
    WITH own AS (SELECT found.row, s.* FROM found JOIN source AS s USING (position)),
    copied AS (
        SELECT own.row, arg_min(c.position, (c.content_hash <> own.content_hash, c.position)) AS position
        FROM own JOIN source AS c ON c.crawl = own.representative_crawl AND c.id = own.representative_id
        WHERE {_IS_COPY.format("own")} AND NOT {_IS_COPY.format("c")} GROUP BY own.row
    ),
    near AS ({{near}})
    SELECT own.row, coalesce(t.position, s.position) AS position, s.exclusion
    FROM own LEFT JOIN copied USING (row) JOIN source AS s ON s.position = coalesce(copied.position, own.position)
    LEFT JOIN near ON s.eligible AND near.crawl = s.crawl AND near.id = s.id
    LEFT JOIN source AS t ON t.eligible AND t.crawl = near.to_crawl AND t.id = near.to_id
"""
