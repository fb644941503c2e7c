import { useMutation } from "@tanstack/react-query";
import { carryOut } from "../../lib/orders/waiting.ts";
import { invalidate } from "../../lib/query-keys.ts";
import type { WaitingOrder } from "../../lib/wire.ts";
import { useOwner } from "../../shared/session/session-context.ts";
import { signWaiting, withdrawWaiting } from "./api.ts";

/** What the stored request was answered, as far as a person must see it. */
export interface Outcome {
  waiting: WaitingOrder;
  /** Shown once. */
  apiKey?: string;
  agentName: string;
  txHash?: string;
  network?: string;
}

function outcomeOf(waiting: WaitingOrder, answer: unknown): Outcome {
  const { apiKey, agent, txHash, network } = (answer ?? {}) as {
    apiKey?: string;
    agent?: { name: string };
    txHash?: string;
    network?: string;
  };
  return { waiting, apiKey, agentName: agent?.name ?? "agent", txHash, network };
}

/** Signing an order; carrying it out, which the last who signs does at once; and giving it up. */
export function useDecide(waiting: WaitingOrder, onDone: (outcome: Outcome) => void) {
  const isMember = useOwner().member !== null;
  // An answer may contain a key, which must not stay in memory.
  const gcTime = 0;
  const send = useMutation({
    mutationFn: async (complete: WaitingOrder) => outcomeOf(complete, await carryOut(complete)),
    onSuccess: onDone,
    onSettled: invalidate.afterAll,
    gcTime,
  });
  const sign = useMutation({
    mutationFn: () => signWaiting(waiting),
    onSuccess: (signed) => {
      // Somebody who is only invited cannot send it: an admin does.
      if (signed.isComplete && isMember) send.mutate(signed);
    },
    onSettled: invalidate.afterWaiting,
  });
  const giveUp = useMutation({
    mutationFn: () => withdrawWaiting(waiting),
    onSettled: invalidate.afterWaiting,
  });
  return { sign, send, giveUp };
}
