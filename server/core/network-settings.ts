/** The configured networks and their endpoints. */
import { findNetwork, type NetworkFacts } from "./networks.ts";
import { listed, valid } from "./setting.ts";

export const LOCAL_CHAIN_ID = 5042002;

export function readNetworks(text: string): NetworkFacts[] {
  const networks: NetworkFacts[] = [];
  const reasons: string[] = [];
  for (const id of listed(text)) {
    const facts = findNetwork(id);
    if (!facts) reasons.push(`names "${id}", which is not in the network table`);
    else if (networks.includes(facts)) reasons.push(`names ${facts.id} twice`);
    else networks.push(facts);
  }
  return valid(networks, reasons);
}

/** All reads use `rpcUrls`, in order of preference; `wsUrls` only announce new blocks. */
export function readEndpoints(text: string): { rpcUrls: string[]; wsUrls: string[] } {
  const urls = listed(text);
  const wsUrls = urls.filter((url) => url.startsWith("ws"));
  const rpcUrls = urls.filter((url) => !wsUrls.includes(url));
  const reasons: string[] = [];
  if (!urls.every((url) => /^(http|ws)s?:\/\/./.test(url) && URL.canParse(url)))
    reasons.push("must list http(s) URLs, and ws(s) URLs that announce new blocks");
  if (wsUrls.length > 0 && rpcUrls.length === 0) reasons.push("has no http(s) URL");
  return valid({ rpcUrls, wsUrls }, reasons);
}
