"""What a schema consists of, as comparable lines read from the catalogue."""

from __future__ import annotations

from importlib.resources import files
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    import psycopg

    from schemas.migrations import SchemaName

#: Each query takes the namespace as %(n)s and gives one text column.
PARTS: Mapping[str, str] = {
    "schema": """
        SELECT concat_ws(' ', nspname, nspowner::regrole, nspacl::text)
        FROM pg_namespace WHERE nspname = %(n)s""",
    "relation": """
        SELECT concat_ws(' ', c.relname, c.relkind, c.relpersistence, c.relowner::regrole,
            c.relacl::text, c.reloptions::text, c.relrowsecurity, c.relreplident,
            pg_get_partkeydef(c.oid), pg_get_expr(c.relpartbound, c.oid))
        FROM pg_class c WHERE c.relnamespace = %(n)s::regnamespace AND c.relkind <> 'i'""",
    "column": """
        SELECT concat_ws(' ', c.relname, a.attname, format_type(a.atttypid, a.atttypmod),
            a.attnotnull, a.attidentity, a.attgenerated, l.collname, a.attstorage, a.attacl::text,
            pg_get_expr(d.adbin, d.adrelid))
        FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid
        LEFT JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum
        LEFT JOIN pg_collation l ON l.oid = a.attcollation
        WHERE c.relnamespace = %(n)s::regnamespace AND a.attnum > 0 AND NOT a.attisdropped
          AND c.relkind <> 'i'""",
    "constraint": """
        SELECT concat_ws(' ', coalesce(conrelid::regclass::text, contypid::regtype::text), conname,
            pg_get_constraintdef(oid))
        FROM pg_constraint WHERE connamespace = %(n)s::regnamespace""",
    "index": """
        SELECT pg_get_indexdef(c.oid) || ' ' || coalesce(c.reloptions::text, '')
        FROM pg_class c WHERE c.relnamespace = %(n)s::regnamespace AND c.relkind IN ('i', 'I')""",
    "view": """
        SELECT relname || ': ' || pg_get_viewdef(oid)
        FROM pg_class WHERE relnamespace = %(n)s::regnamespace AND relkind IN ('v', 'm')""",
    "routine": """
        SELECT concat_ws(' ', proowner::regrole, proacl::text, pg_get_functiondef(oid))
        FROM pg_proc WHERE pronamespace = %(n)s::regnamespace AND prokind IN ('f', 'p')""",
    "aggregate": """
        SELECT concat_ws(' ', oid::regprocedure, proowner::regrole, proacl::text)
        FROM pg_proc WHERE pronamespace = %(n)s::regnamespace AND prokind = 'a'""",
    "trigger": """
        SELECT pg_get_triggerdef(t.oid) || ' ' || t.tgenabled::text
        FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid
        WHERE c.relnamespace = %(n)s::regnamespace AND NOT t.tgisinternal""",
    "rule": """
        SELECT pg_get_ruledef(r.oid) FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class
        WHERE c.relnamespace = %(n)s::regnamespace""",
    "policy": """
        SELECT concat_ws(' ', polrelid::regclass, polname, polcmd, polpermissive, polroles::text,
            pg_get_expr(polqual, polrelid), pg_get_expr(polwithcheck, polrelid))
        FROM pg_policy p JOIN pg_class c ON c.oid = p.polrelid
        WHERE c.relnamespace = %(n)s::regnamespace""",
    "type": """
        SELECT concat_ws(' ', t.typname, t.typtype, t.typowner::regrole, t.typacl::text,
            format_type(t.typbasetype, t.typtypmod), t.typnotnull, t.typdefault,
            (SELECT string_agg(enumlabel, ',' ORDER BY enumsortorder)
             FROM pg_enum WHERE enumtypid = t.oid))
        FROM pg_type t WHERE t.typnamespace = %(n)s::regnamespace AND t.typtype IN ('e', 'd', 'r')
        """,
    "sequence": """
        SELECT concat_ws(' ', c.relname, s.seqtypid::regtype, s.seqstart, s.seqincrement, s.seqmax,
            s.seqmin, s.seqcache, s.seqcycle)
        FROM pg_sequence s JOIN pg_class c ON c.oid = s.seqrelid
        WHERE c.relnamespace = %(n)s::regnamespace""",
    "publication": """
        SELECT concat_ws(' ', p.pubname, p.pubowner::regrole, p.puballtables, p.pubinsert,
            p.pubupdate, p.pubdelete, p.pubtruncate, p.pubviaroot, r.prrelid::regclass)
        FROM pg_publication p JOIN pg_publication_rel r ON r.prpubid = p.oid
        JOIN pg_class c ON c.oid = r.prrelid WHERE c.relnamespace = %(n)s::regnamespace""",
    "comment": """
        SELECT concat_ws(
            ' ', (pg_identify_object(classoid, objoid, objsubid)).identity, description)
        FROM pg_description
        WHERE (pg_identify_object(classoid, objoid, objsubid)).schema = %(n)s
           OR (classoid = 'pg_namespace'::regclass AND objoid = %(n)s::regnamespace)""",
    "default privilege": """
        SELECT concat_ws(' ', defaclrole::regrole, defaclobjtype, defaclacl::text)
        FROM pg_default_acl
        WHERE defaclnamespace = %(n)s::regnamespace OR defaclnamespace = 0""",
}


def describe(conn: psycopg.Connection, namespace: str) -> list[str]:
    """Every object of a schema, one sorted line each; equal schemas give equal lists."""
    lines: list[str] = []
    for part, query in PARTS.items():
        rows = conn.execute(query.encode(), {"n": namespace}).fetchall()
        lines.extend(sorted(f"{part}: {row[0]}" for row in rows))
    return lines


def build_from_file(
    conn: psycopg.Connection, schema: SchemaName, parameters: Mapping[str, str | int]
) -> None:
    """Build a schema from its `schema.sql` in an empty database."""
    with conn.transaction():
        for name, value in parameters.items():
            conn.execute("SELECT set_config(%s, %s, true)", (f"tailrace.{name}", str(value)))
        conn.execute(files("schemas").joinpath(schema, "schema.sql").read_bytes())
