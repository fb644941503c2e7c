// Goal: what is a difference of a payment channel, to the atomic unit; what an open deposit or a missing answer leaves open.
import t from "tap";
import { privateKeyToAccount } from "viem/accounts";
import type { ChannelConfig } from "../../server/core/authorization.ts";
import { TIMINGS } from "../../server/core/timings.ts";
import type { Finding } from "../../server/plugins/reconciliation/compare.ts";
import {
  ChannelProofs,
  problemsOf,
  type ChannelRows,
  type ChannelTotals,
} from "../../server/plugins/reconciliation/channels.ts";
import { channelIdAt } from "../../server/schemes/batch-settlement/paying.ts";
import { signVoucher } from "../helpers/batch-settlement.ts";

const chainId = 31_337;
const signer = privateKeyToAccount(`0x${"11".repeat(32)}`);
const address = (digit: string) => `0x${digit.repeat(40)}` as const;
const config: ChannelConfig = {
  payer: address("a"),
  payerAuthorizer: signer.address.toLowerCase() as `0x${string}`,
  receiver: address("b"),
  receiverAuthorizer: address("c"),
  token: address("d"),
  withdrawDelay: 900,
  salt: `0x${"00".repeat(32)}`,
};
const id = channelIdAt(chainId, config);
const voucher = await signVoucher({ chainId }, signer, id, 300n);
const rows: ChannelRows = {
  agentId: "agt_1",
  id,
  config,
  isClosed: false,
  ceiling: 300n,
  voucher,
  charged: 200n,
  returned: 100n,
  deposited: 1_000n,
  hasOpenDeposit: false,
  returnedInAll: 100n,
  receivedInAll: 100n,
};
const fits: ChannelTotals = { balance: 900n, claimed: 200n };

const found = (
  changed: Partial<ChannelRows>,
  totals: Partial<ChannelTotals> = {},
  returned = 100n,
) =>
  problemsOf(chainId, { ...rows, ...changed }, { ...fits, ...totals }, returned).map(
    ({ kind, by }) => `${kind} ${by}`,
  );

t.test("what is a difference", async (t) => {
  t.same(found({}), []);
  t.same(found({ deposited: 1_001n }), ["channel_balance -1"]);
  t.same(found({ deposited: 999n }), ["channel_balance 1"]);
  t.same(found({}, { balance: 901n }), ["channel_balance 1"]);
  t.same(found({}, {}, 101n), ["channel_balance 1"]);
  t.same(found({ deposited: 5n, hasOpenDeposit: true }), [], "the deposit may be there, or not");
  t.same(found({}, { claimed: 300n }), [], "all that was signed");
  t.same(found({}, { claimed: 301n }), ["channel_claimed 1"]);
  t.same(found({ hasOpenDeposit: true }, { claimed: 301n }), ["channel_claimed 1"]);
  t.same(found({ ceiling: 301n }), ["channel_row -1"], "no voucher for it");
  t.same(found({ voucher: null }), ["channel_row -1"]);
  t.same(found({ ceiling: 0n, voucher: null }, { claimed: 0n }), [], "nothing signed yet");
  t.same(
    found({ config: { ...config, receiver: address("e") } }),
    ["channel_row -1"],
    "another channel",
  );
});

t.test("a closed channel is empty, and what was claimed was charged", async (t) => {
  const closed = { isClosed: true, returned: 800n };
  t.same(found(closed, { balance: 200n }, 800n), []);
  t.same(found({ ...closed, charged: 199n }, { balance: 200n }, 800n), ["channel_row 1"]);
  t.same(found({ ...closed, charged: 201n }, { balance: 200n }, 800n), [], "not claimed by then");
  t.same(found(closed, {}, 100n), ["channel_balance 700"], "something is left in it");
});

interface World {
  channel?: Partial<ChannelRows>;
  answers?: ChannelTotals[];
  needed?: number;
  payouts?: number;
  missing?: boolean;
}

/** One round; what was found, and when the channel is looked at again. */
function world({ channel = {}, answers = [fits], needed = 1, payouts = 1, missing }: World) {
  const findings: Finding[] = [];
  const corrected: bigint[] = [];
  const looks: (number | null)[] = [];
  const agreed: string[][] = [];
  let receipts = 0;
  const one = { ...rows, ...channel };
  const proofs = new ChannelProofs({
    chainId,
    due: async () => [{ agentId: one.agentId, id }],
    totals: async () => [answers[0]],
    witnesses: async () => ({ answers: answers.map((answer) => [answer]), needed }),
    rows: async () => [one],
    payouts: async () => Array.from({ length: payouts }, (_, n) => `0x${n}` as const),
    payout: async (hash) => {
      receipts += 1;
      return missing ? undefined : new Map(hash === "0x0" ? [[id, 100n]] : []);
    },
    correct: async (_, returned) => corrected.push(returned) > 0,
    agreed: async (channels) => void agreed.push(...channels.map(({ kinds }) => [...kinds])),
    lookAgain: async (channels) => void looks.push(...channels.map(({ seconds }) => seconds)),
    repair: async (finding) => {
      if (made.waits) return "wait";
      findings.push(finding);
      return "done";
    },
    timeouts: {
      timings: { ...TIMINGS, reconcileChannelsMs: 0 },
      forget: (key) => void made.forgotten.push(key),
    },
    log: { info: () => undefined },
  });
  const made = {
    one,
    /** Whether a difference must last longer. */
    waits: false,
    forgotten: [] as string[],
    async run() {
      for (const list of [findings, corrected, looks, agreed]) list.length = 0;
      receipts = 0;
      await proofs.run(9n);
      return {
        kinds: findings.map(({ kind }) => kind),
        corrected: [...corrected],
        seconds: looks[0],
        agreed: agreed[0],
        receipts,
        findings: [...findings],
      };
    },
  };
  return made;
}

const ALL = ["channel_balance", "channel_claimed", "channel_row"];

t.test("a healthy channel needs no receipt", async (t) => {
  t.match(await world({}).run(), { kinds: [], receipts: 0, seconds: null, agreed: ALL });
  t.match(await world({ channel: { hasOpenDeposit: true } }).run(), { kinds: [], seconds: 60 });
});

t.test("what came back is what the receipts say", async (t) => {
  const higher = { returned: 101n, returnedInAll: 101n };
  const lower = { returned: 0n, returnedInAll: 0n };
  const one = await world({ channel: higher }).run();
  t.match(one, { kinds: ["channel_balance"], corrected: [], seconds: 600 });
  t.same(one.agreed, ["channel_claimed", "channel_row"]);
  t.equal(await one.findings[0]?.correct?.(), true);
  t.match(await world({ channel: lower }).run(), { kinds: [], corrected: [100n], agreed: ALL });
  const both = { deposited: 1_005n, returned: 105n, returnedInAll: 105n };
  const two = await world({ channel: both }).run();
  t.match(two, { kinds: ["channel_balance"], corrected: [] });
  t.equal(two.findings[0]?.correct, undefined, "the deposits are wrong, not what came back");
  t.match(
    await world({ channel: { ...lower, hasOpenDeposit: true } }).run(),
    { kinds: [], corrected: [] },
    "not while a deposit is open",
  );
  t.match(
    await world({ channel: { returnedInAll: 150n, receivedInAll: 100n } }).run(),
    { kinds: [], corrected: [], agreed: ALL },
    "another channel of the wallet is wrong",
  );
});

t.test("nothing is concluded without every receipt, and few are read in a round", async (t) => {
  const channel = { deposited: 1_005n };
  t.match(await world({ channel, missing: true }).run(), {
    kinds: [],
    agreed: undefined,
    seconds: 10,
  });
  const many = world({ channel, payouts: 45 });
  t.match(await many.run(), { kinds: [], receipts: 20, agreed: undefined, seconds: 10 });
  t.match(await many.run(), { kinds: [], receipts: 20 });
  t.match(await many.run(), { kinds: ["channel_balance"], receipts: 5 });
});

t.test("endpoints that disagree", async (t) => {
  const wrong = { balance: 1n, claimed: 900n };
  t.match(await world({ answers: [wrong, fits] }).run(), { kinds: [], agreed: ALL });
  t.match(await world({ answers: [wrong, wrong] }).run(), {
    kinds: ["channel_balance", "channel_claimed"],
  });
  t.match(
    await world({ answers: [wrong, { ...fits, claimed: 301n }] }).run(),
    { kinds: ["channel_claimed"], agreed: ["channel_balance", "channel_row"] },
    "only what all of them show",
  );
  t.match(await world({ answers: [wrong], needed: 2 }).run(), {
    kinds: [],
    agreed: undefined,
    seconds: 10,
  });
});

t.test("what has not lasted is looked at soon, and counts from its own start", async (t) => {
  const made = world({ channel: { deposited: 1_005n } });
  made.waits = true;
  const key = `channel_balance:${id}:-5`;
  t.match(await made.run(), { kinds: [], seconds: 10, agreed: ["channel_claimed", "channel_row"] });
  t.match(await made.run(), { kinds: [], seconds: 10 });
  t.same(made.forgotten, [], "it goes on");
  made.one.deposited = 1_000n;
  t.match(await made.run(), { kinds: [], seconds: null, agreed: ALL }, "over");
  t.same(made.forgotten.splice(0), [key]);
  made.one.deposited = 1_005n;
  await made.run();
  made.one.deposited = 1_006n;
  await made.run();
  t.same(made.forgotten.splice(0), [key], "another amount is another difference");
  made.waits = false;
  t.match(await made.run(), { kinds: ["channel_balance"], seconds: 600 });
});
