/** Shows a signed authorization to the target, and judges what came back. */
import { OutboundError } from "../../adapters/http/errors.ts";
import type { OutboundRequest, OutboundResponse } from "../../adapters/http/outbound.ts";
import { isRedirect } from "./ask.ts";
import type { TargetRequest } from "./types.ts";

export type Presented =
  | { kind: "delivered"; response: OutboundResponse }
  | {
      kind: "failed";
      /** `refused`: a second 402, which is final. `timeout` and `broken` may be worth one more try. */
      how: "refused" | "rejected" | "timeout" | "broken";
      response: OutboundResponse | undefined;
      why: string;
    };

export async function present(
  ask: (request: OutboundRequest) => Promise<OutboundResponse>,
  target: TargetRequest,
  proof: Record<string, string>,
): Promise<Presented> {
  try {
    return judge(await ask({ ...target, headers: { ...target.headers, ...proof } }));
  } catch (error) {
    if (!(error instanceof OutboundError)) throw error;
    const how = error.failure === "timeout" ? "timeout" : "broken";
    return { kind: "failed", how, response: undefined, why: error.message };
  }
}

function judge(response: OutboundResponse): Presented {
  const { status } = response;
  const failed = (how: "refused" | "rejected" | "broken", why: string): Presented => ({
    kind: "failed",
    how,
    response,
    why,
  });
  if (status === 402) return failed("refused", "The target did not accept the payment");
  if (isRedirect(status)) return failed("rejected", "The target redirected the paid request");
  if (status >= 500) return failed("broken", `The target answered ${status}`);
  if (status >= 400) return failed("rejected", `The target answered ${status}`);
  return { kind: "delivered", response };
}
