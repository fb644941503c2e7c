// What one payment costs in gas, by what its payer signed: alone in its transaction, and in the company of others.
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { approvePermit2 } from "../../helpers/permit2.ts";
import { signedPayment, type Body } from "../../facilitator/payments.ts";
import { permit2Payment, sponsoring } from "../../facilitator/permit2-payments.ts";
import type { BenchRow, World } from "../context.ts";
import { load, settleOutcome } from "../load.ts";
import { sentBy } from "../sent.ts";

const ALONE = 5;
const TOGETHER = 100;

type Make = (given: {
  world: World;
  payer: PrivateKeyAccount;
  payTo: Address;
  /** The account that is asked to settle. */
  relayer: Address;
}) => Promise<Body>;

const eip3009: Make = ({ world: { chain }, payer, payTo }) =>
  signedPayment({ chain, payer, payTo, amount: "1000" });
const permit2: Make = async ({ world: { chain }, payer, payTo }) => {
  await approvePermit2(chain, [payer]);
  return permit2Payment({ chain, payer, payTo });
};
const withPermit: Make = async ({ world: { chain }, payer, payTo }) =>
  permit2Payment({ chain, payer, payTo, extensions: await sponsoring(chain, payer) });
const upto: Make = async ({ world: { chain }, payer, payTo, relayer }) => {
  await approvePermit2(chain, [payer]);
  return permit2Payment({ chain, payer, payTo, facilitator: relayer });
};

/** Fresh payers, one payee that has money already. */
async function gasEach(
  world: World,
  make: Make,
  at: { url: string; relayer: Address; count: number; inFlight: number },
): Promise<bigint> {
  const { chain } = world;
  const payTo = privateKeyToAccount(generatePrivateKey()).address;
  const payers = Array.from({ length: at.count }, () => privateKeyToAccount(generatePrivateKey()));
  await chain.mint([...payers.map(({ address }) => address), payTo], 10n ** 6n);
  const bodies = await Promise.all(
    payers.map((payer) => make({ world, payer, payTo, relayer: at.relayer })),
  );
  const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
  const { outcomes } = await load({
    url: at.url,
    bodies: bodies.map((body) => JSON.stringify(body)),
    inFlight: at.inFlight,
    outcomeOf: settleOutcome,
  });
  if (outcomes["success"] !== at.count)
    throw new Error(`not all were settled: ${JSON.stringify(outcomes)}`);
  const sent = await sentBy(chain, [at.relayer], fromBlock);
  return sent.gasUsed / BigInt(at.count);
}

const SCHEMES: [string, Make, { travelsAlone?: boolean }][] = [
  ["exact over EIP-3009", eip3009, {}],
  ["exact over Permit2", permit2, {}],
  ["exact over Permit2, with the token's permit", withPermit, {}],
  ["upto", upto, { travelsAlone: true }],
];

export const rows: BenchRow[] = SCHEMES.map(([name, make, { travelsAlone = false }]) => ({
  name: `gas per payment, ${name}`,
  target: "",
  async run(context) {
    const world = await context.world({ blockTimeSeconds: 1 });
    const [ours] = world.relayerAddresses.ours;
    const [theirs] = world.relayerAddresses.reference;
    if (!ours || !theirs) throw new Error("no relayers");
    const at = { url: `${world.ours}/api/x402/settle`, relayer: ours };
    // The local chain's proxies stand there without their constructor's storage: the first use of one pays for it.
    await gasEach(world, make, { ...at, count: 1, inFlight: 1 });
    const alone = await gasEach(world, make, { ...at, count: ALONE, inFlight: 1 });
    const together = travelsAlone
      ? undefined
      : await gasEach(world, make, { ...at, count: TOGETHER, inFlight: TOGETHER });
    const reference = await gasEach(world, make, {
      url: `${world.reference}/settle`,
      relayer: theirs,
      count: ALONE,
      inFlight: 1,
    });
    return {
      reference: `${reference}`,
      ours: together === undefined ? `${alone}` : `${alone}; ${together} in company`,
      ratio: Number(together ?? alone) / Number(reference),
      details: { alone: `${alone}`, together: together === undefined ? null : `${together}` },
    };
  },
}));
