// Goal: a wrong configuration is refused before anything opens, with one list that names every problem and no secret.
import { randomBytes } from "node:crypto";
import t from "tap";
import { ConfigError, loadConfig, missingServices } from "../../server/config.ts";

const goodKey = randomBytes(32).toString("base64");
const relayerKey = `0x${"11".repeat(31)}22`;
const production = {
  DATABASE_URL: "postgres://user:pass@127.0.0.1:5432/purser",
  RPC_URL_5042002: "http://127.0.0.1:8545",
  RELAYER_PRIVATE_KEYS: relayerKey,
  MASTER_KEYS: `k1:${goodKey}`,
};

function problemsOf(environment: Record<string, string>): string[] {
  try {
    loadConfig(environment);
    return [];
  } catch (error) {
    if (error instanceof ConfigError) return error.problems;
    throw error;
  }
}

t.test("nothing set is the local world", async (t) => {
  const config = loadConfig({});
  t.same(missingServices(config), { postgres: true, chain: true });
  t.equal(config.publicUrl, "http://localhost:3000");
  t.ok(config.fetchPrivateOrigins.includes(config.publicUrl), "agents may fetch our own demo");
});

t.test("database and chain set is production shape", async (t) => {
  const config = loadConfig(production);
  t.same(missingServices(config), { postgres: false, chain: false });
  t.equal(config.masterKeyActive, "k1");
  t.same(config.fetchPrivateOrigins, [], "no private origin is reachable");
});

t.test("production refuses missing, short and example master keys", async (t) => {
  const cases: [string, Record<string, string>, RegExp][] = [
    ["missing", { MASTER_KEYS: "" }, /MASTER_KEYS is missing/],
    [
      "short",
      { MASTER_KEYS: `k1:${randomBytes(16).toString("base64")}` },
      /16 bytes instead of 32/,
    ],
    [
      "zeros",
      { MASTER_KEYS: `k1:${Buffer.alloc(32).toString("base64")}` },
      /looks like an example/,
    ],
    [
      "a sequence",
      {
        MASTER_KEYS: `k1:${Buffer.from(Array.from({ length: 32 }, (_, i) => i)).toString("base64")}`,
      },
      /looks like an example/,
    ],
    [
      "words",
      { MASTER_KEYS: `k1:${Buffer.from("change-me-please-this-is-a-key-0").toString("base64")}` },
      /looks like an example/,
    ],
    ["not kid:base64", { MASTER_KEYS: goodKey }, /not kid:base64/],
    ["twice", { MASTER_KEYS: `k1:${goodKey},k1:${goodKey}` }, /twice/],
    ["unknown active", { MASTER_KEY_ACTIVE: "k9" }, /MASTER_KEY_ACTIVE names "k9"/],
  ];
  for (const [name, change, expected] of cases) {
    t.match(problemsOf({ ...production, ...change }).join("\n"), expected, name);
  }
});

t.test("every problem is listed at once, and no value of a secret", async (t) => {
  const problems = problemsOf({
    PORT: "99999",
    DATABASE_URL: "mysql://root:hunter2@db/x",
    NETWORKS: "eip155:1,eip155:31337,eip155:1",
    RELAYER_PRIVATE_KEYS: "0xdeadbeef",
    MASTER_KEYS: "k1:c2hvcnQ=",
    PUBLIC_URL: "https://example.com/path",
    LOG_LEVEL: "loud",
    SETTLE_WAIT_MS: "99999",
    CONFIRMATIONS_1: "0",
    MAX_FEE_GWEI_1: "lots",
    MAX_TIP_GWEI_1: "0",
  });
  const text = problems.join("\n");
  for (const key of [
    "PORT",
    "DATABASE_URL",
    "NETWORKS",
    "RPC_URL_1",
    "RELAYER_PRIVATE_KEYS",
    "MASTER_KEYS",
    "PUBLIC_URL",
    "LOG_LEVEL",
    "SETTLE_WAIT_MS",
    "CONFIRMATIONS_1",
    "MAX_FEE_GWEI_1",
    "MAX_TIP_GWEI_1",
  ]) {
    t.match(text, key, `${key} is named`);
  }
  t.notMatch(text, /hunter2|deadbeef|c2hvcnQ/, "values of secrets are not echoed");
});

t.test("an empty value means not set", async (t) => {
  t.equal(loadConfig({ PORT: "", DATABASE_URL: "" }).port, 3000);
});

t.test("what gas may cost, by network", async (t) => {
  const caps = (more: Record<string, string>) => {
    const [{ maxFeeGwei, maxTipGwei }] = loadConfig(more).networks;
    return [maxFeeGwei, maxTipGwei];
  };
  t.same(caps({}), [5_000, 500], "the network table's");
  t.same(caps({ MAX_FEE_GWEI_5042002: "0.5", MAX_TIP_GWEI_5042002: "0.25" }), [0.5, 0.25]);
});
