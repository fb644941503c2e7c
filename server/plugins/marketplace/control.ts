/**
 * Proof that the owner of a listing controls its host: a file there names the owner's address. Without it we send only
 * GET without a body, because other requests could have effects for a third party that never agreed to them.
 */
import { isRecord, parseAddress, readForeignJson } from "../../core/foreign-text.ts";
import { ApiError } from "../../errors.ts";
import { OutboundError } from "../../infra/outbound/guard.ts";
import type { OutboundRequest, OutboundResponse } from "../../infra/outbound/outbound.ts";

/** The owners that a URL's host names, in lower case. */
export type ControlReader = (url: string) => Promise<ReadonlySet<string>>;

const WELL_KNOWN = "/.well-known/purser.json";
const LIMITS = { timeoutMs: 5_000, maxBytes: 16 * 1024 };

/** Reads `{"owners": ["0x..."]}`; any other content names no owner. */
export function controlReader(
  send: (request: OutboundRequest) => Promise<OutboundResponse>,
): ControlReader {
  return async (url) => {
    const wellKnown = new URL(WELL_KNOWN, url);
    const response = await send({ url: wellKnown, ...LIMITS }).catch((error: unknown) => {
      if (error instanceof OutboundError) return undefined;
      throw error;
    });
    if (response?.status !== 200) return new Set();
    const read = readForeignJson(() => JSON.parse(response.body.toString("utf8")) as unknown);
    const owners = read.ok && isRecord(read.value) ? read.value["owners"] : undefined;
    if (!Array.isArray(owners)) return new Set();
    return new Set(
      owners.flatMap((owner: unknown) => {
        const parsed = parseAddress(owner);
        return parsed.ok ? [parsed.address] : [];
      }),
    );
  };
}

export async function assertControl(
  control: ControlReader,
  url: string,
  ownerAddress: string,
): Promise<void> {
  const owners = await control(url);
  if (owners.has(ownerAddress.toLowerCase())) return;
  const wellKnownUrl = new URL(WELL_KNOWN, url).href;
  throw new ApiError("proof_of_control_required", {
    detail: `Purser sends only GET to hosts that have not allowed more. Serve {"owners":["${ownerAddress}"]} at ${wellKnownUrl}.`,
    extra: { wellKnownUrl, owner: ownerAddress },
  });
}
