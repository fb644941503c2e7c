// The gas cost of one payment by scheme: in a transaction of its own, and in a batch.
import type { Address } from "viem";
import { generatePrivateKey, privateKeyToAccount, type PrivateKeyAccount } from "viem/accounts";
import { approvePermit2 } from "../../helpers/permit2.ts";
import { signedPayment, type Body } from "../../facilitator/payments.ts";
import { permit2Payment, sponsoring } from "../../facilitator/permit2-payments.ts";
import type { BenchRow, Server, World } from "../context.ts";
import { load, settleOutcome } from "../load.ts";
import { figure, inRounds } from "../rounds.ts";
import { sentBy } from "../sent.ts";

const ALONE = 5;
const TOGETHER = 100;

type Make = (given: {
  world: World;
  payer: PrivateKeyAccount;
  payTo: Address;
  /** The account that settles. */
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

/** Settles payments of fresh payers to payees that already have a balance. */
async function gasEach(
  world: World,
  make: Make,
  server: Server,
  { count, inFlight, payees = 1 }: { count: number; inFlight: number; payees?: number },
): Promise<number> {
  const { chain } = world;
  const fresh = (many: number): PrivateKeyAccount[] =>
    Array.from({ length: many }, () => privateKeyToAccount(generatePrivateKey()));
  const [payers, payTo] = [fresh(count), fresh(payees)];
  await chain.mint(
    [...payers, ...payTo].map(({ address }) => address),
    10n ** 6n,
  );
  const [relayer = "0x"] = server.relayers;
  const bodies = await Promise.all(
    payers.map((payer, index) =>
      make({ world, payer, payTo: (payTo[index % payees] ?? payer).address, relayer }),
    ),
  );
  const fromBlock = (await chain.publicClient.getBlockNumber()) + 1n;
  const { outcomes } = await load({
    url: `${server.url}/settle`,
    bodies: bodies.map((body) => JSON.stringify(body)),
    inFlight,
    outcomeOf: settleOutcome,
  });
  if (outcomes["success"] !== count) {
    // Not every server supports every scheme.
    if (server !== world.servers.ours) return Number.NaN;
    throw new Error(`not all were settled: ${JSON.stringify(outcomes)}`);
  }
  return Number((await sentBy(chain, server.relayers, fromBlock)).gasUsed) / count;
}

const SCHEMES: [string, Make, { travelsAlone?: boolean }][] = [
  ["exact over EIP-3009", eip3009, {}],
  ["exact over Permit2", permit2, {}],
  ["exact over Permit2, with the token's permit", withPermit, {}],
  ["upto", upto, { travelsAlone: true }],
];

const fact = { unit: "", better: "less", of: (gas: number) => gas } as const;

const bySchemes: BenchRow[] = SCHEMES.map(([name, make, { travelsAlone = false }]) => ({
  name: `gas per payment, ${name}`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: 1 });
    // The local chain's proxies were placed without running their constructors, so the first use of one pays
    // for its storage.
    await gasEach(world, make, world.servers.ours, { count: 1, inFlight: 1 });
    const alone = await inRounds(world, (each) =>
      gasEach(world, make, world.servers[each] ?? world.servers.ours, {
        count: ALONE,
        inFlight: 1,
      }),
    );
    const figures = [figure(alone, { ...fact, what: "alone" })];
    if (travelsAlone) return figures;
    const together = await inRounds({ servers: { ours: world.servers.ours } }, () =>
      gasEach(world, make, world.servers.ours, { count: TOGETHER, inFlight: TOGETHER }),
    );
    return [...figures, figure(together, { ...fact, what: `in company of ${TOGETHER}` })];
  },
}));

const MOST_GAS = 45_000;

const toPayees: BenchRow = {
  name: `gas per settlement, ${TOGETHER} payers`,
  async run(context) {
    const world = await context.world({ blockTimeSeconds: 1 });
    const to = (payees: number) =>
      inRounds(world, (name) =>
        gasEach(world, eip3009, world.servers[name] ?? world.servers.ours, {
          count: TOGETHER,
          inFlight: name === "ours" ? TOGETHER : 20,
          payees,
        }),
      );
    const target = {
      label: `<= ${MOST_GAS}`,
      reached: ({ ours }: { ours: number }) => ours <= MOST_GAS,
    };
    return [
      figure(await to(1), { ...fact, what: "to one payee", target }),
      figure(await to(TOGETHER), { ...fact, what: "each to another payee" }),
    ];
  },
};

export const rows: BenchRow[] = [...bySchemes, toPayees];
