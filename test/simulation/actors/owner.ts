// An owner's requests: repeated after lost answers, and signed where the service asks for it.
import { privateKeyToAccount } from "viem/accounts";
import { signOrder } from "../../helpers/owner.ts";
import { asOwner, type KnownAgent } from "../agents.ts";
import type { Answer, Call, Lost } from "../host.ts";
import { pause, type World } from "../world.ts";

const MOST_SIGNATURES = 12;

/** Sends it with the owner's signature as long as the answer is an order to sign. `signing` is called before a signature is sent. */
export async function ownerAsks(
  world: World,
  agent: KnownAgent,
  call: Call & { body?: Record<string, unknown> },
  { each, signing }: { each?: (answer: Answer | Lost) => void; signing?: () => void } = {},
): Promise<Answer | Lost> {
  const account = privateKeyToAccount(agent.owner.key);
  const as = asOwner(agent);
  let body = call.body;
  for (let count = 0; ; count += 1) {
    let isLost = false;
    const answer = await world.ask({ ...call, ...(body && { body }), as }, (one) => {
      isLost ||= one.status === 0;
      each?.(one);
    });
    if (count === MOST_SIGNATURES) return answer;
    const authorization = await signOrder(account, answer.body);
    if (authorization) {
      signing?.();
      body = { ...call.body, authorization };
      continue;
    }
    // The order was used by a request whose answer was lost, or it is too old.
    const code = answer.body["code"];
    if (body === call.body || (code !== "order_used" && code !== "signature_expired"))
      return answer;
    if (code === "order_used" && !isLost) return answer;
    body = call.body;
    await pause(world.random.int(50, 500));
  }
}
