// Goal: the command line prints JSON, has an exit code per outcome, and reads the key only from the environment.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import t from "tap";
import { Purser } from "../../packages/purser/src/index.ts";
import { agentWorld } from "./world.ts";

const { agent, friend, demoUrl, baseUrl } = await agentWorld(t, { dailyLimit: "2" });
/** The fields of the commands' output that this file reads. */
interface Answer {
  wallet: string;
  price: string;
  paid: boolean;
  amount: string;
  txHash: string;
  paymentId: string;
  memo: string;
  code: string;
  items: { url: string }[];
}
/** The directory in which the command could have saved a key: empty. */
const CONFIG = t.testdir({});
const CLI = fileURLToPath(new URL("../../packages/purser/bin/purser.mjs", import.meta.url));

async function purser(
  args: string[],
  env: Record<string, string> = { AGENT_API_KEY: agent.apiKey },
) {
  const options = {
    env: {
      PATH: process.env["PATH"],
      PURSER_URL: baseUrl,
      XDG_CONFIG_HOME: CONFIG,
      ...env,
    } as NodeJS.ProcessEnv,
  };
  const run = await promisify(execFile)(process.execPath, [CLI, ...args], options).then(
    ({ stdout }) => ({ code: 0, stdout }),
    (error: { code: number; stdout: string }) => ({ code: error.code, stdout: error.stdout }),
  );
  t.notMatch(run.stdout, agent.apiKey, "the key is never printed");
  return {
    code: run.code,
    text: run.stdout,
    json: () => JSON.parse(run.stdout) as Answer,
  };
}

t.test("commands", async (t) => {
  const me = await purser(["me"]);
  t.equal(me.code, 0);
  t.equal(me.json().wallet, agent.walletAddress);
  const quote = await purser(["fetch", demoUrl, "--dry-run"]);
  t.match([quote.code, quote.json().price], [0, "0.001"]);
  const fetched = await purser(["fetch", demoUrl, "--max", "0.01"]);
  t.match([fetched.code, fetched.json().paid], [0, true]);
  const spent = await purser([
    "spend",
    friend,
    "0.5",
    "--memo",
    "from the shell",
    "--idempotency-key",
    "shell-1",
  ]);
  t.match([spent.code, spent.json().amount], [0, "0.5"]);
  const again = await purser([
    "spend",
    friend,
    "0.5",
    "--memo",
    "from the shell",
    "--idempotency-key",
    "shell-1",
  ]);
  t.equal(again.json().txHash, spent.json().txHash, "the same key pays once");
  t.equal((await purser(["payment", spent.json().paymentId])).json().memo, "from the shell");
  t.equal((await purser(["payments"])).json().items.length, 2);
  const opened = await purser(["task", "open", "shell-1", "--limit", "0.3", "--name", "Shell"]);
  t.match([opened.code, opened.json()], [0, { id: "shell-1", left: "0.3" }]);
  t.equal((await purser(["spend", friend, "0.2", "--task", "shell-1"])).code, 0);
  t.equal((await purser(["payments", "--task", "shell-1"])).json().items.length, 1);
  const full = await purser(["spend", friend, "0.2", "--task", "shell-1"]);
  t.match([full.code, full.json()], [3, { code: "task_ceiling_exceeded" }]);
  t.match((await purser(["task", "show", "shell-1"])).json(), { spent: "0.2" });
  t.match((await purser(["task", "list"])).json(), { items: [{ id: "shell-1" }] });
  t.match((await purser(["task", "close", "shell-1"])).json(), { state: "closed" });
  t.equal((await purser(["task", "open", "shell-2"])).code, 2, "no limit");
  t.equal(
    (await purser(["listings", "--search", "statistics"], {})).json().items[0]?.url,
    demoUrl,
    "needs no key",
  );
});

t.test("a paid API is checked without a key", async (t) => {
  const payable = await purser(["validate", demoUrl], {});
  t.equal(payable.code, 0);
  t.match(payable.text, /payable \(answered 402\)/);
  t.match(payable.text, /Everything but the balance holds\./);
  const free = await purser(["validate", `${baseUrl}/api/health`], {});
  t.equal(free.code, 1);
  t.match(free.text, /NOT PAYABLE \(answered 200\)\n\nERROR free at status\n/);
  const json = await purser(["validate", `${baseUrl}/api/health`, "--json"], {});
  t.match([json.code, JSON.parse(json.text)], [1, { ok: false, findings: [{ code: "free" }] }]);
  t.equal((await purser(["validate"], {})).code, 2);
});

t.test("a URL that cannot be fetched gets a sentence", async (t) => {
  for (const url of ["api.example.com/data", "localhost:4001/data"]) {
    const noScheme = await purser(["fetch", url]);
    t.match(
      [noScheme.code, noScheme.json()],
      [1, { code: "validation_failed", detail: /needs its scheme, such as "https:/ }],
      url,
    );
  }
  for (const url of ["http://localhost:4001/data", "http://10.0.0.1/data"]) {
    const local = await purser(["fetch", url]);
    t.match(
      [local.code, local.json()],
      [3, { code: "url_blocked", detail: /FETCH_PRIVATE_ORIGINS/ }],
      url,
    );
  }
});

t.test("outcomes by exit code", async (t) => {
  const blocked = await purser(["spend", friend, "5"]);
  t.match([blocked.code, blocked.json().code], [3, "daily_limit_exceeded"]);
  const failed = await purser(["spend", friend, "1e3"]);
  t.match([failed.code, failed.json().code], [1, "invalid_amount"]);
  t.match([(await purser(["me"], { AGENT_API_KEY: "purser_wrong" })).code], [1]);
  for (const wrong of [
    [],
    ["dance"],
    ["spend"],
    ["fetch"],
    ["me", "--unknown"],
    ["fetch", demoUrl, "--method", "BREW"],
  ]) {
    t.equal((await purser(wrong)).code, 2, wrong.join(" ") || "no command");
  }
  const noTime = await purser(["task", "open", "t", "--limit", "1", "--expires", "tomorrow"]);
  t.match(noTime.json(), {
    code: "validation_failed",
    detail: /^body\.expiresAt must be a time with its zone, such as 2026-12-31T18:00:00Z$/,
  });
  t.equal((await purser(["me"], {})).code, 2, "no key");
  const keyless = new Purser({ apiKey: "", baseUrl }).me();
  await t.rejects(keyless, { message: /^API key missing\..*AGENT_API_KEY/ });
  const help = await purser(["--help"], {});
  t.match([help.code, help.text], [0, /purser spend/]);
  const ofFetch = await purser(["fetch", "--help"], {});
  t.match([ofFetch.code, ofFetch.text], [0, /purser fetch <url>[^]*--max AMOUNT +the most to pay/]);
  t.notMatch(ofFetch.text, /purser spend/);
  for (const wrong of [
    ["fetch", demoUrl, "--raw", "--dry-run"],
    ["fetch", demoUrl, "--detail", "most"],
  ])
    t.equal((await purser(wrong)).code, 2, wrong.join(" "));
});
