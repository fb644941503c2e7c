/** The actions of the operators' page: each once for its confirmation, with its entry in the operators' record. */
import type { NetworkFacts } from "../../core/networks.ts";
import { ApiError } from "../../errors.ts";
import type { Db, PrismaClient } from "../../infra/db/prisma.ts";
import { lastOperatorActs, lockOperators, type OperatorAct } from "../audit/operators.ts";
import type { NotDone } from "../reconciliation/operator-actions.ts";

type Network = Pick<NetworkFacts, "id" | "chainId" | "usdc">;

interface Action {
  name: OperatorAct;
  confirmationId: string;
  run: (tx: Db) => Promise<object | NotDone>;
}

interface Done {
  replayed: boolean;
  entry: string | null;
}

/** A person presses again within minutes; this many actions of one kind later the state decides. */
const REMEMBERED = 100;

export async function actOnce(prisma: PrismaClient, action: Action): Promise<Done> {
  return prisma.$transaction(async (tx) => {
    // Two presses at once run one after the other.
    await lockOperators(tx);
    const entries = await lastOperatorActs(tx, { take: REMEMBERED, action: action.name });
    const earlier = entries.find(({ what }) => what["confirmationId"] === action.confirmationId);
    if (earlier) return { replayed: true, entry: String(earlier.seq) };
    const done = await action.run(tx);
    if ("refused" in done)
      throw new ApiError("conflict", { detail: `Nothing was changed: ${done.refused}.` });
    const [entry] = await lastOperatorActs(tx, { take: 1 });
    return { replayed: false, entry: entry ? String(entry.seq) : null };
  });
}

export function findNetwork<N extends Network>(networks: readonly N[], id: string): N {
  const network = networks.find((each) => each.id === id);
  if (network) return network;
  const message = `must be one of ${networks.map((each) => each.id).join(", ")}`;
  throw new ApiError("validation_failed", {
    detail: `body.network ${message}`,
    extra: { errors: [{ path: "body.network", message }] },
  });
}
