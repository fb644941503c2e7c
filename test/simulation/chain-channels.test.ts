// Goal: payment channels on the simulated chain do what the compiled contract does on a real node: the same refusals, events, states and money, in random sequences.
import t, { type Test } from "tap";
import { encodeFunctionData, keccak256, type Address, type Hex } from "viem";
import * as reads from "../../server/infra/chain/contracts.ts";
import {
  pairOf,
  readState,
  receiverCall,
  stateCalls,
} from "../../server/schemes/batch-settlement/index.ts";
import {
  CHANNELS,
  CHANNELS_ABI,
  channelIdOf,
  erc3009Deposit,
  signClaims,
  signRefund,
  signVoucher,
  type ChannelConfig,
  type VoucherClaim,
} from "../helpers/batch-settlement.ts";
import type { TestAccount } from "../helpers/chain.ts";
import { Random } from "../helpers/random.ts";
import { isRefused, twoChains, type TwoChains } from "./two-chains.ts";

const SEEDS = [1, 2];
const STEPS = 80;
const DELAY = 900;
/** The simulated gas is an estimate. */
const GAS_MAY_DIFFER = 0.06;
const FUNDS = 100_000n;
/** They need a state that is rare. */
const OFTEN = ["deposit", "deposit", "initiateWithdraw", "finalizeWithdraw", "finalizeWithdraw"];
/** The functions with their outcomes. */
const seen = new Set<string>();

for (const seed of SEEDS)
  t.test(`random calls of seed ${seed}`, async (t) => {
    const world = await made(await twoChains(t), new Random(seed));
    for (let step = 0; step < STEPS; step += 1) seen.add(await world.step(t));
  });

t.test("each function did something, and each was refused", async (t) => {
  const functions = [...seen].map((outcome) => outcome.split(" ")[0] ?? "");
  for (const name of new Set(functions))
    // A settle with nothing to pay does nothing.
    t.ok(seen.has(`${name} done`) && (name === "settle" || seen.has(`${name} refused`)), name);
  t.equal(new Set(functions).size, 9);
});

interface Cast {
  payer: TestAccount;
  signer: TestAccount;
  receiver: TestAccount;
  authorizer: TestAccount;
  stranger: TestAccount;
}

async function made(both: TwoChains, random: Random) {
  const cast: Cast = {
    payer: await both.account(),
    signer: await both.account(),
    receiver: await both.account(),
    authorizer: await both.account(),
    stranger: await both.account(),
  };
  await both.each((chain) => chain.mint([cast.payer.address], FUNDS));
  const accounts = Object.values(cast) as TestAccount[];
  const configs = [0, 1, 2].map((number): ChannelConfig => ({
    payer: cast.payer.address,
    payerAuthorizer: number === 2 ? `0x${"0".repeat(40)}` : cast.signer.address,
    receiver: number === 1 ? cast.stranger.address : cast.receiver.address,
    receiverAuthorizer: cast.authorizer.address,
    token: both.usdc,
    withdrawDelay: DELAY,
    salt: `0x${String(number).repeat(64)}`,
  }));
  const mostly = <T>(usual: T, others: readonly T[]): T =>
    random.next() < 0.75 ? usual : random.pick(others);
  const amount = (): bigint => BigInt(random.pick([0, 1, 700, 900, 1_000, 5_000, 30_000]));

  async function row(config: ChannelConfig): Promise<VoucherClaim> {
    const total = amount();
    const ceiling = mostly(total, [total - 1n, total + 500n]);
    const usual = config.payerAuthorizer === cast.signer.address ? cast.signer : cast.payer;
    const signed = await signVoucher(
      both,
      mostly(usual, accounts),
      channelIdOf(both, config),
      ceiling < 0n ? 0n : ceiling,
    );
    const cut = random.next() < 0.05 ? signed.slice(0, -2) : signed;
    return {
      voucher: { channel: config, maxClaimableAmount: ceiling < 0n ? 0n : ceiling },
      signature: cut as Hex,
      totalClaimed: total,
    };
  }

  const refundNonceOf = async (config: ChannelConfig): Promise<bigint> =>
    both.model.ledger.number(`refunds ${channelIdOf(both, config).slice(2)}`);

  async function refundData(config: ChannelConfig): Promise<Hex> {
    const nonce = mostly(await refundNonceOf(config), [0n, 1n, 7n]);
    const wanted = amount();
    const channelId = channelIdOf(both, config);
    const by = mostly(cast.authorizer, accounts);
    const signature = await signRefund(both, by, { channelId, nonce, amount: wanted });
    return encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "refundWithSignature",
      args: [config, wanted, nonce, signature],
    });
  }

  async function claimData(config: ChannelConfig): Promise<Hex> {
    const rows: VoucherClaim[] = [];
    for (let count = mostly(1, [0, 2, 3]); count > 0; count -= 1)
      rows.push(await row(mostly(config, configs)));
    const signature = await signClaims(both, mostly(cast.authorizer, accounts), rows);
    return encodeFunctionData({
      abi: CHANNELS_ABI,
      functionName: "claimWithSignature",
      args: [rows, signature],
    });
  }

  const CALLS: Record<string, (config: ChannelConfig) => Promise<[TestAccount, Hex]>> = {
    async deposit(config) {
      const delay = mostly(DELAY, [899, 2_592_001]);
      const real = { ...config, withdrawDelay: delay };
      const owner = mostly(cast.payer, accounts);
      const salt = keccak256(
        `0x${random
          .int(1, 2 ** 30)
          .toString(16)
          .padStart(8, "0")}`,
      );
      const wanted = amount();
      const args = await erc3009Deposit(both, owner, real, wanted, {
        salt,
        sent: { amount: mostly(wanted, [wanted + 1n]) },
      });
      const data = encodeFunctionData({ abi: CHANNELS_ABI, functionName: "deposit", args });
      return [random.pick(accounts), data];
    },
    claimWithSignature: async (config) => [random.pick(accounts), await claimData(config)],
    async claim(config) {
      const rows = [await row(config)];
      const data = encodeFunctionData({ abi: CHANNELS_ABI, functionName: "claim", args: [rows] });
      return [mostly(cast.authorizer, accounts), data];
    },
    async settle({ receiver, token }) {
      const args = [receiver, token] as const;
      const data = encodeFunctionData({ abi: CHANNELS_ABI, functionName: "settle", args });
      return [random.pick(accounts), data];
    },
    refundWithSignature: async (config) => [random.pick(accounts), await refundData(config)],
    async refund(config) {
      const args = [config, amount()] as const;
      const data = encodeFunctionData({ abi: CHANNELS_ABI, functionName: "refund", args });
      return [mostly(cast.receiver, accounts), data];
    },
    async multicall(config) {
      const args = [[await claimData(config), await refundData(config)]] as const;
      const data = encodeFunctionData({ abi: CHANNELS_ABI, functionName: "multicall", args });
      return [random.pick(accounts), data];
    },
    async initiateWithdraw(config) {
      const args = [config, amount()] as const;
      const data = encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "initiateWithdraw",
        args,
      });
      return [mostly(cast.signer, accounts), data];
    },
    async finalizeWithdraw(config) {
      const data = encodeFunctionData({
        abi: CHANNELS_ABI,
        functionName: "finalizeWithdraw",
        args: [config],
      });
      return [mostly(cast.signer, accounts), data];
    },
  };

  /** The same call, the same receipt, and the same state after it. */
  async function step(t: Test): Promise<string> {
    const kind = random.pick([...Object.keys(CALLS), ...OFTEN]);
    if (random.next() < 0.2) await both.mine(DELAY);
    const [sender, data] = await (CALLS[kind] as (typeof CALLS)["deposit"])(random.pick(configs));
    await both.same(t, `${kind}: a call`, async (chain) =>
      reads.callAs(chain, sender.address, { target: CHANNELS, data }, { gas: 1_000_000n }),
    );
    const nonce = Number(await reads.readNonce(both.simulated, sender.address, "latest"));
    const raw = await both.sign(sender, { nonce, to: CHANNELS, data, gas: 1_000_000n });
    const hash = await both.send(t, raw);
    if (isRefused(hash)) throw new Error(`refused: ${hash.failed}`);
    await both.mine();
    const { anvil, simulated } = await both.each((chain) => reads.readReceipt(chain, hash));
    if (!anvil || !simulated) throw new Error(`${kind}: no receipt`);
    t.strictSame(shown(simulated), shown(anvil), `${kind}: the receipt`);
    const ratio = Number(simulated.gasUsed) / Number(anvil.gasUsed);
    t.ok(
      Math.abs(ratio - 1) <= GAS_MAY_DIFFER,
      `${kind}: gas ${Number(simulated.gasUsed)} simulated, ${Number(anvil.gasUsed)} real`,
    );
    const state = await both.same(t, `${kind}: the state`, readAll);
    t.ok(state, `${kind}: the state is read`);
    return `${kind} ${anvil.status === "0x1" ? "done" : "refused"}`;
  }

  async function readAll(chain: TwoChains["anvil"]) {
    const calls = configs.flatMap((config) => [
      ...stateCalls(channelIdOf(both, config)),
      receiverCall(config.receiver, config.token),
    ]);
    const results = await reads.readMany(chain, calls, both.height);
    const states = configs.map((_, index) => ({
      state: readState(results.slice(index * 4, index * 4 + 3)),
      earned: pairOf(results[index * 4 + 3]),
    }));
    const holders = [...accounts.map(({ address }) => address), CHANNELS as Address];
    const balances = await reads.readBalances(chain, both.usdc, holders, both.height);
    return { states, balances };
  }

  return { step };
}

/** Without the hash of the block and the gas, which differ. */
const shown = ({ status, logs }: reads.RpcReceipt) => ({
  status,
  logs: logs.map(({ address, topics, data }) => ({ address, topics, data })),
});
