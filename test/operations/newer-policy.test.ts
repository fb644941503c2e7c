// Goal: the build before, beside this one on one database, pays for agents whose policy it knows, and signs nothing for an
// agent whose rules use a setting that it does not know. What an owner stops at one of them is stopped at both.
// Tier: full (compiles the build before).
// Own process (it adds a setting to the table of rules).
import { spawn } from "node:child_process";
import t from "tap";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { HALT_COLUMN, signPolicy } from "../helpers/newer-setting.ts";
import { freePort } from "../../server/local/free-port.ts";
import { callApi, spendAs } from "../helpers/call.ts";
import { testChain } from "../helpers/chain.ts";
import { asOwner, createAgent, signIn, type NewTestAgent } from "../helpers/owner.ts";
import { signUpWithPasskey, testPasskey } from "../helpers/passkey.ts";
import { testDatabase } from "../helpers/postgres.ts";
import { until } from "../helpers/until.ts";
import { scriptedSeller } from "../x402-client/scripted-seller.ts";
import { compileCommit, injector, isInHistory, PREVIOUS_COMMIT } from "./previous-build.ts";

const { testApp, testEnvironment } = await import("../helpers/app.ts");

const START_MS = 60_000;
/** Is in no allowlist. */
const STRANGER = "0x00000000000000000000000000000000000057a6";
const skip = isInHistory(PREVIOUS_COMMIT)
  ? false
  : `the build before (${PREVIOUS_COMMIT}) is not in this clone's history`;

t.test("the build before and a newer policy", { skip }, async (t) => {
  const [folder, chain, database] = await Promise.all([
    compileCommit(t, PREVIOUS_COMMIT),
    testChain(t, { blockTimeSeconds: 0.5 }),
    testDatabase(t),
  ]);
  await database.pool.query(HALT_COLUMN);
  const service = await testApp(t, { chain, database });
  const port = await freePort();
  const payee = privateKeyToAccount(generatePrivateKey()).address;
  const seller = await scriptedSeller(t, chain, payee);
  service.config.fetchPrivateOrigins.push(seller.origin);
  // One public address, as behind a proxy.
  const shared = { PUBLIC_URL: service.config.publicUrl, FETCH_PRIVATE_ORIGINS: seller.origin };
  const env = { ...testEnvironment({ databaseUrl: database.url, chain, port }), ...shared };
  const child = spawn(process.execPath, ["server/start.mjs", "--built"], {
    cwd: folder,
    env: { PATH: process.env["PATH"], ...env, PORT: String(port) },
    stdio: ["ignore", "pipe", "pipe"],
  });
  t.teardown(() => child.kill("SIGKILL"));
  let output = "";
  for (const stream of [child.stdout, child.stderr])
    stream.on("data", (chunk: Buffer) => (output = (output + chunk.toString()).slice(-4_000)));
  const previous = `http://127.0.0.1:${port}`;
  await until(async () => {
    if (child.exitCode !== null) throw new Error(`the build before did not start: ${output}`);
    return (await fetch(`${previous}/api/ready`).catch(() => undefined))?.status === 200;
  }, START_MS);

  const owner = await signIn(service);
  const made = async () => {
    const agent = await createAgent(service, owner, { dailyLimit: "10", allowlist: [payee] });
    await chain.mint(agent.walletAddress, 10n ** 7n);
    return agent;
  };
  const [known, user] = [await made(), await made()];
  const spend = async (agent: NewTestAgent) => {
    const answer = await fetch(`${previous}/api/agents/spend`, {
      method: "POST",
      headers: agent.headers,
      body: JSON.stringify({ recipient: payee, amount: "0.001" }),
    });
    const { code } = (await answer.json()) as { code?: string };
    return { status: answer.status, code };
  };
  t.match(await spend(user), { status: 200 }, "before it uses the setting");
  await signPolicy(service, owner.account, user, "large");
  const settlements = async () =>
    (
      await database.pool.query("SELECT 1 FROM settlements WHERE from_address = $1", [
        user.walletAddress.toLowerCase(),
      ])
    ).rowCount;
  const before = await settlements();
  t.match(await spend(user), { status: 503, code: "policy_version_unknown" });
  t.equal(await settlements(), before, "nothing was signed");
  t.match(await spend(known), { status: 200 }, "another agent pays");

  // What was added at one build is refused at the other: the database decides for both.
  const careful = await signIn(service);
  for (const [what, url, body, code] of [
    ["a denied payee", "/api/owner/denied-payees", { payee }, "payee_denied"],
    ["a budget", "/api/budgets", { name: "All", dailyLimit: "0" }, "budget_exceeded"],
  ] as const) {
    const agent = await createAgent(service, careful, { dailyLimit: "10", allowlist: [payee] });
    await chain.mint(agent.walletAddress, 10n ** 7n);
    t.match(await spend(agent), { status: 200 }, `${what}: before`);
    const agents = what === "a budget" ? { agents: [agent.id] } : {};
    const added = await callApi(service.app, careful, "POST", url, { ...body, ...agents });
    t.ok(added.statusCode < 300, added.body);
    t.match(await spend(agent), { status: 403, code }, what);
    await database.pool.query("DELETE FROM denied_payees");
  }

  // An owner without a wallet.
  const passkey = testPasskey(service.config.publicUrl.replace("127.0.0.1", "localhost"));
  const person = await signUpWithPasskey(service, passkey);
  const theirs = await createAgent(service, person, { dailyLimit: "10", allowlist: [payee] });
  await chain.mint(theirs.walletAddress, 10n ** 7n);
  t.match(await spend(theirs), { status: 200 }, "it pays for the agent of a passkey's owner");

  await t.test("what is stopped at one build is stopped at the other", async (t) => {
    type Build = Parameters<typeof callApi>[0];
    const builds = [service.app, injector(previous) as unknown as Build] as const;
    for (const [name, [here, there]] of Object.entries({
      "stopped by this build": builds,
      "stopped by the build before": [builds[1], builds[0]] as const,
    })) {
      const person = await signIn(service);
      const agent = await createAgent(service, person, { dailyLimit: "10", allowlist: [payee] });
      await chain.mint(agent.walletAddress, 10n ** 7n);
      const url = `/api/agents/${agent.id}`;
      const codeOf = (answer: { json: () => unknown }) =>
        (answer.json() as { code?: string }).code ?? "none";
      const pay = (at: Build) => spendAs(at, agent, { recipient: payee, amount: "0.001" });
      const fetchPaid = (at: Build) =>
        callApi(at, agent, "POST", "/api/agents/x402-fetch", { url: seller.url });
      t.equal((await pay(there)).statusCode, 200, `${name}: before`);
      const wanted = { recipient: STRANGER, amount: "0.001" };
      const asked = await spendAs(there, agent, { ...wanted, requestApproval: true }, "approval");
      const { approvalId } = asked.json<{ approvalId: string }>();

      t.equal((await callApi(here, person, "POST", "/api/owner/stop")).statusCode, 200, name);
      const session = await callApi(there, person, "GET", "/api/auth/session");
      t.match(session.json(), { stopped: { agents: 1 } }, name);
      const proofs = seller.proofs.length;
      t.equal(codeOf(await pay(there)), "agent_paused", `${name}: a payment`);
      t.equal(codeOf(await fetchPaid(there)), "agent_paused", `${name}: a fetch`);
      t.equal(seller.proofs.length, proofs, `${name}: nothing was signed`);
      for (const [method, path, body] of [
        ["POST", `${url}/keys`, {}],
        ["POST", `/api/approvals/${approvalId}/approve`, {}],
        ["PATCH", url, { status: "active" }],
      ] as const) {
        const answer = await asOwner(there, person, { method, url: path, body });
        t.equal(codeOf(answer), "owner_stopped", `${name}: ${path}`);
      }
      const resumed = await asOwner(there, person, {
        method: "POST",
        url: "/api/owner/resume",
        body: {},
      });
      t.match(resumed.json(), { agents: 1, stopped: null }, `${name}: resumed by the other`);
      t.equal((await pay(here)).statusCode, 200, `${name}: and pays again`);
      t.equal((await fetchPaid(here)).statusCode, 200, `${name}: and fetches again`);
    }
  });
});
