// Goal: the documented configuration is the one that the service reads: no key is missing, and none is invented.
import { readFileSync } from "node:fs";
import t from "tap";
import { loadConfig } from "../../server/config.ts";
import { CONFIGURATION, formOf } from "../../server/core/configuration-keys.ts";

const textOf = (file: string): string =>
  readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");

/** Every key that loadConfig reads, with chain ids as the documentation writes them. */
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

t.test("every key that is read is documented, and no other", async (t) => {
  const documented = Object.values(CONFIGURATION).flatMap((section) => Object.keys(section));
  t.ok(documented.length > 15, `${documented.length} keys`);
  t.same(documented.toSorted(), keysRead());
});

t.test("a documented default is the default", async (t) => {
  const defaults = Object.values(CONFIGURATION)
    .flatMap((section) => Object.entries(section))
    .flatMap(([key, { default: text = "" }]): [string, string][] => {
      const value = text.replace(/, at most .*/, "");
      return /^[\w.:/]+$/.test(value) ? [[key.replace("<chainId>", "5042002"), value]] : [];
    });
  t.ok(defaults.length > 15, `${defaults.length} defaults`);
  for (const [key, value] of defaults) t.same(loadConfig({ [key]: value }), loadConfig({}), key);
  t.notSame(loadConfig({ PORT: "3001" }), loadConfig({}), "another value is noticed");
});

t.test("an invalid value is reported with its key and the expected form", async (t) => {
  for (const key of Object.values(CONFIGURATION).flatMap((section) => Object.keys(section))) {
    if (formOf(key) === undefined) continue;
    const value = key === "METRICS_TOKEN" ? "short" : "\u0000".repeat(101);
    t.throws(
      () => loadConfig({ [key]: value }),
      { message: `  - ${key} must be ${formOf(key)}` },
      key,
    );
  }
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
