// Goal: what the README says can be configured is what the service reads: no key is missing there, and none is invented.
import { readFileSync } from "node:fs";
import t from "tap";
import { loadConfig } from "../../server/config.ts";
import { NETWORKS } from "../../server/core/networks.ts";

const textOf = (file: string): string =>
  readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");
const readme = textOf("README.md");

/** Every key that is asked for, with chain ids as the README writes them. */
function keysRead(): string[] {
  const keys = new Set<string>();
  const environment = new Proxy<Record<string, string | undefined>>(
    {},
    {
      get: (_target, key) => {
        keys.add(String(key).replace(/_\d+$/, "_<chainId>"));
        return undefined;
      },
    },
  );
  loadConfig(environment);
  return [...keys].sort();
}

t.test("the table of the README names every key that is read", async (t) => {
  const [, production = ""] = /^## Production$([\s\S]*?)^## /m.exec(readme) ?? [];
  const rows = [...production.matchAll(/^\| (`[^|]+) \|/gm)].map(([, cell = ""]) => cell);
  const named = rows.flatMap((cell) => [...cell.matchAll(/`([^`]+)`/g)].map(([, key = ""]) => key));
  t.ok(named.length > 15, `${named.length} keys`);
  t.same(named.toSorted(), keysRead());
});

for (const file of [".env.example", "docker-compose.yml"]) {
  t.test(`${file} sets only keys that are read`, async (t) => {
    const known = new Set([...keysRead(), "POSTGRES_USER", "POSTGRES_DB", "POSTGRES_PASSWORD"]);
    const set = [...textOf(file).matchAll(/^(?:# ?| {6})([A-Z][A-Z0-9_]+)(?:=|: )/gm)].map(
      ([, key = ""]) => key.replace(/_\d+$/, "_<chainId>"),
    );
    t.ok(set.length > 5, `${set.length} keys`);
    t.same(
      set.filter((key) => !known.has(key)),
      [],
    );
  });
}

t.test("the README names every network, and no other", async (t) => {
  const [, sentence = ""] = /Networks known: ([^.]+)\./.exec(readme.replaceAll("\n", " ")) ?? [];
  t.same(sentence.split(", ").toSorted(), NETWORKS.map(({ name }) => name).toSorted());
});
