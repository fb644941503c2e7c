// Setup of most x402-fetch tests: one owner, one funded agent, one payee and a scripted seller. Also checks the invariants at the end.
import type { Test } from "tap";
import { getAddress, parseAbi, type Address } from "viem";
import { createAgent, signIn, type NewTestAgent, type SignedInOwner } from "../helpers/owner.ts";
import { expectGasIsAccounted } from "../helpers/engine-invariants.ts";
import { testApp, type TestApp, type TestAppOptions } from "../helpers/app.ts";
import { scriptedSeller, type Script, type ScriptedSeller } from "./scripted-seller.ts";

export const PAYEE: Address = "0x3C44CdDdB6a900fa2b585dd299e03d12FA4293BC";
const FUNDS = 5_000_000n;
const USED = parseAbi([
  "event AuthorizationUsed(address indexed authorizer, bytes32 indexed nonce)",
]);

export interface Answered {
  status: number;
  body: Record<string, unknown>;
  /** The body as received. */
  text: string;
  headers: Record<string, unknown>;
}

export interface Market extends TestApp {
  owner: SignedInOwner;
  agent: NewTestAgent;
  seller: ScriptedSeller;
  fetch(
    body: Record<string, unknown> | string,
    headers?: Record<string, string>,
  ): Promise<Answered>;
  /** The newest payment in the ledger. */
  lastPayment(): Promise<Record<string, unknown> | undefined>;
  balanceOf(address: Address): Promise<bigint>;
  reserved(): Promise<string>;
}

export async function market(
  t: Test,
  options: TestAppOptions & { script?: Script; agent?: Record<string, unknown> } = {},
): Promise<Market> {
  const made = await testApp(t, {
    ...options,
    env: { SETTLE_WAIT_MS: "2500", ...options.env },
    configure(config) {
      // Sellers fail on purpose here, far more often than the daily number of cancellations that we pay for.
      config.forcedCancelsPerDay = 1_000n;
      options.configure?.(config);
    },
  });
  const { app, chain, config, database } = made;
  const owner = await signIn(made);
  const agent = await createAgent(made, owner, { allowlist: [PAYEE], ...options.agent });
  await chain.mint(agent.walletAddress, FUNDS);
  const seller = await scriptedSeller(t, chain, PAYEE, options.script);
  // Equals FETCH_PRIVATE_ORIGINS, which cannot contain the seller's port before the seller listens.
  config.fetchPrivateOrigins.push(seller.origin);
  return {
    ...made,
    owner,
    agent,
    seller,
    // Most tests are about members that only the full answer has. Those of the short one pass "short".
    async fetch(body, headers = {}) {
      const answer = await app.inject({
        method: "POST",
        url: "/api/agents/x402-fetch",
        headers: { ...agent.headers, ...headers },
        payload: typeof body === "string" ? body : JSON.stringify({ detail: "full", ...body }),
      });
      // A 500 is never expected; its reason is only in the log.
      if (answer.statusCode === 500) throw new Error(made.logs.at(-2) ?? answer.body);
      const { statusCode: status, payload: text, headers: answered } = answer;
      return { status, text, body: answer.json(), headers: answered };
    },
    async lastPayment() {
      const { rows } = await database.pool.query<Record<string, unknown>>(
        `SELECT id, status, amount::text, counterparty, denial_code, failure_code, tx_hash, delivered,
                upstream_status, url, listing_id FROM payments WHERE agent_id = $1
          ORDER BY created_at DESC, id DESC LIMIT 1`,
        [agent.id],
      );
      return rows[0];
    },
    balanceOf: (address) => chain.usdcOf(address),
    async reserved() {
      const answer = await app.inject({ url: "/api/agents/me", headers: agent.headers });
      return answer.json<{ limits: { reserved: string } }>().limits.reserved;
    },
  };
}

/** No overspend, one settlement per authorization, ledger equals chain. */
export async function assertLedgerIsChain(t: Test, made: Market): Promise<void> {
  await expectGasIsAccounted(t, made.database.pool);
  const { chain, agent, database } = made;
  const used = await chain.publicClient.getContractEvents({
    address: chain.usdc,
    abi: USED,
    eventName: "AuthorizationUsed",
    args: { authorizer: getAddress(agent.walletAddress) },
    fromBlock: 0n,
  });
  const { rows } = await database.pool.query<{ nonce: string; amount: string; status: string }>(
    "SELECT nonce, amount::text, status FROM payments WHERE agent_id = $1 AND status <> 'blocked'",
    [agent.id],
  );
  const settled = rows.filter(({ status }) => status === "settled");
  t.same(
    new Set(used.map(({ args }) => args.nonce)),
    new Set(settled.map(({ nonce }) => nonce)),
    "every authorization used on chain is a settled payment, and the other way round",
  );
  t.equal(used.length, settled.length, "each at most once");
  const paid = settled.reduce((sum, { amount }) => sum + BigInt(amount), 0n);
  t.equal(await made.balanceOf(agent.walletAddress), FUNDS - paid, "the wallet paid exactly that");
  const { rows: windows } = await database.pool.query<{ sum: string; counted: string }>(
    `SELECT a.window_sum::text AS sum, (SELECT coalesce(sum(p.amount), 0)::text FROM payments p
        WHERE p.agent_id = a.id AND p.kind IN ('spend', 'x402')
          AND p.status IN ('reserved', 'submitted', 'settled', 'unknown')) AS counted
       FROM agents a WHERE a.id = $1`,
    [agent.id],
  );
  t.equal(windows[0]?.sum, windows[0]?.counted, "the window equals the sum of the ledger");
}
