// Goal: a new table, or a new column that may be sealed under a cell's master key, is not forgotten when an owner moves to
// another cell.
import { readFileSync } from "node:fs";
import t from "tap";
import { settingsOfNewCell } from "../../server/move-owner/cells.ts";
import { ENDED, MOVED, STAYING } from "../../server/move-owner/tables.ts";

const schema = readFileSync(new URL("../../prisma/schema.prisma", import.meta.url), "utf8");
const models = [...schema.matchAll(/^model \w+ \{\n(.*?)^\}/gms)].map(([, body = ""]) => ({
  table: /@@map\("(\w+)"\)/.exec(body)?.[1] ?? "",
  body,
}));

t.test("every table has one place in the list, and the list has no other", async (t) => {
  const listed = [
    ...[...MOVED, ...ENDED].map(({ table }) => table),
    ...Object.keys(STAYING),
    // Cascades from oauth_connections.
  ];
  t.equal(new Set(listed).size, listed.length, "each once");
  const tables = [...models.map(({ table }) => table), "_prisma_migrations"];
  t.ok(tables.length > 70);
  t.same([...listed].sort(), [...tables].sort());
});

/** Columns of bytes that move as they are: hashes, signatures, and what the data key of a wallet encrypts. */
const SAME_EVERYWHERE = [
  "agent_wallets.ciphertext",
  "api_keys.key_hash",
  "approvals.call",
  "audit_heads.hash",
  "audit_log.hash",
  "audit_log.prev_hash",
  "cached_answers.key",
  "channels.voucher",
  "idempotency_keys.body_hash",
  "merchant_keys.key_hash",
  "owner_orders.second_signature",
  "owner_orders.signature",
  "payments.voucher",
  "settlements.body_hash",
  "settlements.caller_key_hash",
  "settlements.cancel_signature",
  "settlements.signature",
  "withdrawal_orders.signature",
];

t.test(
  "every column of bytes that moves is known to be sealed again, or to be no secret",
  async (t) => {
    const found = models.flatMap(({ table, body }) => {
      const moved = MOVED.find((each) => each.table === table);
      if (!moved) return [];
      const columns = [...body.matchAll(/^  (\w+) +Bytes\??(.*)$/gm)].map(
        ([, name = "", rest = ""]) => /@map\("(\w+)"\)/.exec(rest)?.[1] ?? name,
      );
      return columns
        .filter((column) => !moved.changed?.includes(column))
        .map((column) => `${table}.${column}`);
    });
    t.same(found.sort(), SAME_EVERYWHERE);
  },
);

t.test("the new cell's settings never fall back to the old cell's own", async (t) => {
  const old = {
    DATABASE_URL: "postgres://one",
    DATABASE_DIRECT_URL: "postgres://one-direct",
    MASTER_KEYS: "k1:old",
    MASTER_KEY_ACTIVE: "k1",
    CELL: "c1",
    PUBLIC_URL: "https://c1.example",
    CELLS: "c1=http://a,c2=http://b",
    RELAYER_PRIVATE_KEYS: "0x1",
  };
  const needed = {
    TO_DATABASE_URL: "postgres://two",
    TO_MASTER_KEYS_FILE: "/run/two",
    TO_CELL: "c2",
    TO_PUBLIC_URL: "https://c2.example",
  };
  t.same(settingsOfNewCell({ ...old, ...needed, TO_RELAYER_PRIVATE_KEYS_FILE: "/run/relayers" }), {
    DATABASE_URL: "postgres://two",
    MASTER_KEYS_FILE: "/run/two",
    CELL: "c2",
    PUBLIC_URL: "https://c2.example",
    CELLS: old.CELLS,
    RELAYER_PRIVATE_KEYS_FILE: "/run/relayers",
  });
  for (const key of Object.keys(needed))
    t.throws(
      () => settingsOfNewCell({ ...old, ...needed, [key]: "" }),
      { message: new RegExp(`${key.replace("_FILE", "")} is missing`) },
      key,
    );
});
