// Goal: money in a payment channel is where the ledger says: deposits are what was claimed, what came back and what is left. A changed row and
// a claim that nobody signed here are found; a healthy channel, a refund that nobody asked for and an endpoint that lies raise no alarm.
import t from "tap";
import {
  decodeFunctionData,
  encodeAbiParameters,
  encodeFunctionResult,
  multicall3Abi,
  parseAbiParameters,
  type Hex,
} from "viem";
import { generatePrivateKey, privateKeyToAccount } from "viem/accounts";
import { CHANNEL_KEY } from "../helpers/app.ts";
import {
  CHANNELS,
  CHANNELS_ABI,
  signClaims,
  signRefund,
  signVoucher,
  type ChannelConfig,
} from "../helpers/batch-settlement.ts";
import { testChain } from "../helpers/chain.ts";
import { rpcProxy, type Rule } from "../helpers/rpc-proxy.ts";
import { until } from "../helpers/until.ts";
import { depositsEnded, expectWholeLedger } from "../x402-client/channel-facts.ts";
import { channelSeller } from "../x402-client/channel-sellers.ts";
import { market, PAYEE } from "../x402-client/market.ts";
import { ourFacilitator } from "../x402-client/stock-sellers.ts";
import { alarms, metric, reconcile, RECONCILIATION_TIMINGS, untilRead } from "./world.ts";

const CHANNEL_CALL = "0x7a7ebd7b";
const DEPOSIT = 100_000n;

t.test("payment channels are compared with the chain", { timeout: 120_000 }, async (t) => {
  const chain = await testChain(t);
  const proxy = await rpcProxy(t, chain.rpcUrl);
  const made = await market(t, {
    listen: true,
    chain,
    timings: { ...RECONCILIATION_TIMINGS, reconcileChannelsMs: 0 },
    env: {
      SETTLE_WAIT_MS: "10000",
      [`CONFIRMATIONS_${chain.chainId}`]: "1",
      [`RPC_URL_${chain.chainId}`]: `${proxy.url},${chain.rpcUrl}`,
    },
    agent: { dailyLimit: "2", channelHeld: "1", channelDelay: 86_400 },
  });
  await reconcile(made);
  const { app, agent, owner, database } = made;
  const { pool } = database;
  const facilitator = ourFacilitator(made.baseUrl);
  const [, , , sender] = chain.accounts;
  if (!sender) throw new Error("no account");
  await chain.testClient.setBalance({
    address: privateKeyToAccount(CHANNEL_KEY).address,
    value: 10n ** 18n,
  });

  /** A channel with one deposit and three charges of 700. */
  const open = async () => {
    const authorizer = privateKeyToAccount(generatePrivateKey());
    const seller = await channelSeller(t, { chain, payTo: PAYEE, facilitator, authorizer });
    made.config.fetchPrivateOrigins.push(seller.origin);
    for (const _ of [1, 2, 3]) {
      const { body, text } = await made.fetch({ url: `${seller.origin}/word?charge=700` });
      t.match(body, { paid: true }, text);
    }
    await depositsEnded(made);
    const { rows } = await pool.query<Record<string, string> & { withdraw_delay: number }>(
      "SELECT * FROM channels ORDER BY created_at DESC LIMIT 1",
    );
    const [row] = rows;
    if (!row) throw new Error("no channel");
    const config = {
      payer: agent.walletAddress,
      payerAuthorizer: row["signer"],
      receiver: row["receiver"],
      receiverAuthorizer: row["receiver_authorizer"],
      token: row["asset"],
      withdrawDelay: row.withdraw_delay,
      salt: row["salt"],
    } as ChannelConfig;
    return { id: row["id"] as Hex, seller, authorizer, config };
  };
  const send = async (functionName: "claimWithSignature" | "refundWithSignature", args: never) => {
    const hash = await chain
      .walletClient(sender)
      .writeContract({ address: CHANNELS, abi: CHANNELS_ABI, functionName, args });
    await chain.publicClient.waitForTransactionReceipt({ hash });
  };
  const close = async (id: string): Promise<void> => {
    await app.inject({
      method: "POST",
      url: `/api/agents/${agent.id}/channels/${id}/close`,
      headers: owner.headers,
    });
    await until(async () => {
      await pool.query("UPDATE channels SET look_at = '-infinity'");
      await app.closeDueChannels();
      await chain.testClient.mine({ blocks: 1 });
      return (await field(id, "status")) === "closed";
    }, 30_000);
  };
  const field = async (id: string, name: string): Promise<string> => {
    const { rows } = await pool.query<{ value: string }>(
      `SELECT ${name}::text AS value FROM channels WHERE id = $1`,
      [id],
    );
    return rows[0]?.value ?? "";
  };
  const set = (id: string, name: string, value: string) =>
    pool.query(`UPDATE channels SET ${name} = $2 WHERE id = $1`, [id, value]);
  /** Compares every channel, with every absence counted as long. */
  const prove = async (): Promise<string[]> => {
    await pool.query("UPDATE channels SET prove_at = '-infinity'");
    await untilRead(made, async () => {
      const { rows } = await pool.query("SELECT 1 FROM channels WHERE prove_at = '-infinity'");
      return rows.length === 0;
    });
    return openNow();
  };
  const openNow = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ kind: string }>(
      "SELECT kind FROM ledger_differences WHERE healed_at IS NULL ORDER BY kind",
    );
    return rows.map(({ kind }) => kind);
  };
  const allOf = async (): Promise<string[]> => {
    const { rows } = await pool.query<{ kind: string }>("SELECT kind FROM ledger_differences");
    return rows.map(({ kind }) => kind);
  };

  const first = await open();
  await t.test("a healthy channel, through its whole life", async (t) => {
    t.same(await prove(), []);
    await first.seller.collect();
    t.same(await prove(), [], "after a claim and a settle");
    await made.fetch({ url: `${first.seller.origin}/word` });
    t.same(await prove(), [], "with a voucher that is not claimed");
    await close(first.id);
    t.equal(await field(first.id, "returned"), String(DEPOSIT - 3_100n));
    t.same(await prove(), [], "closed");
    t.same(await allOf(), [], "and never anything");
  });

  const second = await open();
  await t.test("money that a receiver returns by itself", async (t) => {
    const amount = 20_000n;
    const refund = { channelId: second.id, nonce: 0n, amount };
    const signature = await signRefund(chain, second.authorizer, refund);
    await send("refundWithSignature", [second.config, amount, 0n, signature] as never);
    await reconcile(made);
    t.same(await prove(), []);
    t.equal(await field(second.id, "returned"), "20000", "the row follows");
    t.same(await allOf(), []);
  });

  await t.test("rows that were changed by hand", async (t) => {
    const changes: [string, () => Promise<unknown>, () => Promise<unknown>, string][] = [
      [
        "a deposit",
        () =>
          pool.query(
            "UPDATE payments SET amount = amount + 5 WHERE channel_id = $1 AND kind = 'deposit'",
            [second.id],
          ),
        () =>
          pool.query(
            "UPDATE payments SET amount = amount - 5 WHERE channel_id = $1 AND kind = 'deposit'",
            [second.id],
          ),
        "channel_balance",
      ],
      [
        "a deposit and what came back of it",
        async () => {
          await pool.query(
            "UPDATE payments SET amount = amount + 5 WHERE channel_id = $1 AND kind = 'deposit'",
            [first.id],
          );
          await pool.query("UPDATE channels SET returned = returned + 5 WHERE id = $1", [first.id]);
        },
        async () => {
          await pool.query(
            "UPDATE payments SET amount = amount - 5 WHERE channel_id = $1 AND kind = 'deposit'",
            [first.id],
          );
          await pool.query("UPDATE channels SET returned = returned - 5 WHERE id = $1", [first.id]);
        },
        "channel_balance",
      ],
      [
        "what was claimed",
        () => set(first.id, "charged", "3099"),
        () => set(first.id, "charged", "3100"),
        "channel_row",
      ],
      [
        "a ceiling",
        () => set(second.id, "ceiling", "2101"),
        () => set(second.id, "ceiling", "2400"),
        "channel_row",
      ],
    ];
    t.equal(await field(second.id, "ceiling"), "2400");
    for (const [what, change, undo, kind] of changes) {
      await change();
      t.same(await prove(), [kind], what);
      await undo();
      t.same(await prove(), [], `${what}: over when the row is right`);
    }
    t.same(
      alarms(made),
      changes.map(([, , , kind]) => `ledger_${kind}`),
      "one alarm each",
    );
  });

  await t.test("what came back is corrected by its receipt, and reported", async (t) => {
    await set(second.id, "returned", "20005");
    t.same(await prove(), []);
    t.equal(await field(second.id, "returned"), "20000");
    t.equal(
      alarms(made).at(-1),
      "ledger_channel_balance",
      "although there was one of this size before",
    );
    await set(second.id, "returned", "0");
    const before = alarms(made).length;
    t.same(await prove(), []);
    t.equal(await field(second.id, "returned"), "20000", "as after a restore");
    t.equal(alarms(made).length, before, "which is no alarm");
  });

  await t.test("an endpoint that lies alone, and one that lags", async (t) => {
    const before = await allOf();
    const lie: Rule = ({ method, params }) => {
      const [call] = params as [{ data?: Hex }];
      if (method !== "eth_call" || !call.data?.includes(CHANNEL_CALL.slice(2)))
        return { do: "pass" };
      const { args } = decodeFunctionData({ abi: multicall3Abi, data: call.data });
      const [calls] = args as unknown as [readonly unknown[]];
      const word = encodeAbiParameters(parseAbiParameters("uint128, uint128"), [7n, 9_000_000n]);
      return {
        do: "answer",
        result: encodeFunctionResult({
          abi: multicall3Abi,
          functionName: "aggregate3",
          result: calls.map(() => ({ success: true, returnData: word })),
        }),
      };
    };
    proxy.behave = lie;
    t.same(await prove(), [], "another endpoint shows what is right");
    proxy.behave = ({ method }) =>
      method === "eth_call"
        ? { do: "answer", error: { code: -32000, message: "header not found" } }
        : { do: "pass" };
    await pool.query("UPDATE channels SET prove_at = '-infinity'");
    await reconcile(made).catch(() => undefined);
    t.same(await openNow(), [], "no state is no difference");
    proxy.reset();
    t.same(await prove(), []);
    t.same(await allOf(), before);
  });

  await t.test("a claim above what the wallet signed here", async (t) => {
    const ceiling = 2_500n;
    const signature = await signVoucher(
      chain,
      privateKeyToAccount(CHANNEL_KEY),
      second.id,
      ceiling,
    );
    const claim = {
      voucher: { channel: second.config, maxClaimableAmount: ceiling },
      signature,
      totalClaimed: ceiling,
    };
    const signed = await signClaims(chain, second.authorizer, [claim]);
    await send("claimWithSignature", [[claim], signed] as never);
    t.same(await prove(), ["channel_claimed"]);
    t.same(await prove(), ["channel_claimed"], "once");
    t.equal(alarms(made).filter((alarm) => alarm === "ledger_channel_claimed").length, 1);
    const network = `eip155:${chain.chainId}`;
    t.match(
      await metric(made, `purser_ledger_differences{network="${network}",kind="channel_claimed"}`),
      / 1$/,
    );
    t.match(
      await metric(made, `purser_channel_proof_overdue_seconds{network="${network}"}`),
      / 0$/,
    );
  });

  await t.test("and what counts as spent is what was signed", (t) => expectWholeLedger(t, made));
});
