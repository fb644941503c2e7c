import type { ResumeOrder } from "../../../../packages/rules/src/orders.ts";
import { api } from "../../lib/api.ts";
import { signed } from "../../lib/orders/signed.ts";
import { resumeToSign } from "../../lib/orders/to-sign.ts";
import type { NetworkInfo, Session } from "../../lib/wire.ts";

type Stopped = NonNullable<Session["stopped"]>;

export const stopEverything = (): Promise<{ stopped: Stopped }> => api.post("/api/owner/stop");

/** The order names the stop that it ends. */
export function resumeEverything(options: {
  owner: string;
  stopped: Stopped;
  network: NetworkInfo | undefined;
}): Promise<unknown> {
  const { owner, stopped, network } = options;
  // An owner's orders that concern no agent are signed for the first network.
  if (!network) throw new Error("The network is not known yet. Try again in a moment.");
  const { chainId } = network;
  const kind = (order: object) =>
    resumeToSign(order as ResumeOrder, { owner, stoppedAt: stopped.at }, chainId);
  const { agents } = stopped;
  return signed(
    {
      kind,
      title: "Resume everything",
      chainId,
      effect: "Agents that you or a rule paused otherwise stay paused.",
      read(order) {
        kind(order);
        const after = agents === 1 ? "1 agent active" : `${agents} agents active`;
        return Promise.resolve({
          changes: [{ what: "Everything", before: "stopped", after }],
          hasUnseenChanges: false,
        });
      },
    },
    (authorization) => api.post("/api/owner/resume", authorization),
  );
}
