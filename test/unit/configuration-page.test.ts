// Goal: the table of keys is true: each key is read as it says, has a reader who would change it, and is named wherever keys are set.
import { readFileSync } from "node:fs";
import t from "tap";
import { keysWithoutEffect, loadConfig } from "../../server/config.ts";
import {
  CHAIN_SETTINGS,
  CUSTODY_KEYS,
  CONSTANT_NOW,
  REMOVED,
  SECTIONS,
  SETTINGS,
} from "../../server/core/configuration.ts";
import { LOCAL_CHAIN_ID } from "../../server/core/network-settings.ts";
import type { Documented } from "../../server/core/setting.ts";
import { problemsOf } from "../helpers/config-problems.ts";

const textOf = (file: string): string =>
  readFileSync(new URL(`../../${file}`, import.meta.url), "utf8");

/** Every key with its declaration; those of a chain with the local chain's id. */
const TABLE: [string, Documented][] = [
  ...Object.entries<Documented>(SETTINGS.properties),
  ...Object.entries<Documented>(CHAIN_SETTINGS.properties).map(
    ([key, setting]): [string, Documented] => [`${key}_${LOCAL_CHAIN_ID}`, setting],
  ),
];

t.test("every key is in one section, with a meaning and with who would change it", async (t) => {
  const inSections = Object.values(SECTIONS).flatMap((section) => Object.keys(section));
  t.same(inSections.toSorted(), TABLE.map(([key]) => key.replace(/_[0-9]+$/, "")).sort());
  t.ok(TABLE.length > 30, `${TABLE.length} keys`);
  for (const [key, { meaning, who }] of TABLE) {
    t.match(meaning, /^.+\w/, key);
    t.match(who, /^[^\n]+\.$/, key);
  }
});

t.test("a documented default is the default", async (t) => {
  const defaults = TABLE.filter(([, setting]) => Boolean(setting.default));
  t.ok(defaults.length > 9, `${defaults.length} defaults`);
  for (const [key, setting] of defaults)
    t.same(loadConfig({ [key]: setting.default }), loadConfig({}), key);
  t.notSame(loadConfig({ PORT: "3001" }), loadConfig({}), "another value is noticed");
});

t.test("the page shows the tables that a key changes", async (t) => {
  t.same(
    loadConfig({ RETAIN_DAYS: SECTIONS.Database.RETAIN_DAYS.usually }),
    loadConfig({}),
    "the days that are kept",
  );
});

t.test("an invalid value is reported with its key and the expected form", async (t) => {
  for (const [key, { form }] of TABLE) {
    if (form === undefined) continue;
    const value = key === "METRICS_TOKEN" ? "short" : "\u0000".repeat(101);
    t.ok(problemsOf({ [key]: value }).includes(`${key} must be ${form}`), key);
  }
});

t.test("a key of an earlier release stops the start, with what to do instead", async (t) => {
  for (const [key, instead] of Object.entries(REMOVED)) {
    t.notOk(
      TABLE.some(([known]) => known === key),
      key,
    );
    t.same(problemsOf({ [key]: "1" }), [`${key} is no longer read: ${instead}`]);
  }
  t.match(problemsOf({ MAX_TIP_GWEI_8453: "1" }), ["MAX_TIP_GWEI_8453 is no longer read"]);
  t.same(problemsOf({ KMS_CACHE_SECONDS: "" }), [], "an empty value is not set");
  t.same(problemsOf({ constructor: "x", toString: "x", valueOf_1: "x" }), [], "keys of others");
});

t.test("a key that is a constant now is named at the start, and stops nothing", async (t) => {
  for (const [key, now] of Object.entries(CONSTANT_NOW)) {
    t.notOk(
      TABLE.some(([known]) => known === key),
      key,
    );
    t.same(problemsOf({ [key]: "1" }), []);
    t.same(keysWithoutEffect({ [key]: "1" }), [`${key} is no longer read: ${now}`]);
  }
  t.same(keysWithoutEffect({ PORT: "1", constructor: "x" }), []);
});

t.test("the custody process reads only its own keys", async (t) => {
  const own = {
    DATABASE_URL: "postgres://user:pass@127.0.0.1:5432/purser",
    RPC_URL_5042002: "http://127.0.0.1:8545",
    MASTER_KEYS: "k1:kms:1b1893ff-bb70-4882-af26-e355b0afd0ff",
    CUSTODY_SOCKET: "/run/purser/custody.sock",
  };
  const others = TABLE.filter(([key]) => !CUSTODY_KEYS.includes(key.replace(/_[0-9]+$/, "")));
  t.ok(others.some(([key]) => key === "RELAYER_PRIVATE_KEYS"));
  const all = { ...own, ...Object.fromEntries(others.map(([key]) => [key, "\u0000"])) };
  t.same(loadConfig(all, "custody"), loadConfig(own, "custody"));
});

for (const file of [".env.example", "docker-compose.yml"]) {
  t.test(`${file} sets only keys that are read`, async (t) => {
    const known = new Set([
      ...TABLE.map(([key]) => key),
      "POSTGRES_USER",
      "POSTGRES_DB",
      "POSTGRES_PASSWORD",
    ]);
    const set = [...textOf(file).matchAll(/^(?:# ?| {6})([A-Z][A-Z0-9_]+)(?:=|: )/gm)].map(
      ([, key = ""]) => key,
    );
    t.ok(set.length > 5, `${set.length} keys`);
    t.same(
      set.filter((key) => !known.has(key)),
      [],
    );
  });
}
