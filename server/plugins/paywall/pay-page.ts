/** What a browser sees instead of a 402: a page that pays with the visitor's own wallet. */
import type { PaymentRequired } from "@x402/core/types";
import { formatAtomic, parseAtomic } from "../../core/money.ts";
import { findNetwork, type NetworkFacts } from "../../core/networks.ts";

export interface PayPageOptions {
  required: PaymentRequired;
  networks: readonly NetworkFacts[];
  /** Where the page's own script and style are. */
  assetsPath: string;
  /** What a wallet is told when it does not know the chain. */
  walletRpcUrl: (network: NetworkFacts) => string;
}

export function payPage(options: PayPageOptions): string {
  const { required, networks, assetsPath, walletRpcUrl } = options;
  const [terms] = required.accepts;
  const network = terms && findNetwork(terms.network, networks);
  if (!terms || !network) throw new Error("a pay page needs terms on a known network");
  const price = formatAtomic(parseAtomic(terms.amount) ?? 0n);
  const title = required.resource.description ?? "";
  const attributes = Object.entries({
    network: network.id,
    "chain-name": network.name,
    "rpc-url": walletRpcUrl(network),
    explorer: network.explorerUrl,
    symbol: network.nativeSymbol,
  }).map(([name, value]) => ` data-${name}="${escapeHtml(value)}"`);
  return `<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="robots" content="noindex">
<title>${escapeHtml(`Pay ${price} USDC`)}</title>
<link rel="stylesheet" href="${escapeHtml(assetsPath)}/pay.css">
<script type="module" src="${escapeHtml(assetsPath)}/pay.js"></script>
</head>
<body${attributes.join("")}>
<main>
<p class="kind">402 Payment Required</p>
<h1>${escapeHtml(price)} USDC</h1>
<p class="lead">${escapeHtml(title === "" ? "This resource is paid per request." : title)}</p>
<dl>
<div><dt>Network</dt><dd>${escapeHtml(network.name)}</dd></div>
<div><dt>Pay to</dt><dd><code>${escapeHtml(terms.payTo)}</code></dd></div>
<div><dt>Resource</dt><dd><code>${escapeHtml(required.resource.url)}</code></dd></div>
</dl>
<div id="wallets" class="wallets" role="group" aria-label="Wallets"></div>
<p id="status" role="status" aria-live="polite">Looking for a wallet in this browser.</p>
<section id="result" hidden>
<h2>Paid</h2>
<p id="receipt"></p>
<pre id="data" tabindex="0"></pre>
</section>
<noscript><p>Paying in the browser needs JavaScript.</p></noscript>
<details>
<summary>For programs and agents</summary>
<p>Ask for this URL with any x402 client: the terms are in the <code>PAYMENT-REQUIRED</code> header of the
402 answer, the proof goes into <code>PAYMENT-SIGNATURE</code>. You sign an authorization for exactly this
amount; the gas is paid for you.</p>
</details>
</main>
</body>
</html>
`;
}

const ESCAPES: Record<string, string> = {
  "&": "&amp;",
  "<": "&lt;",
  ">": "&gt;",
  '"': "&quot;",
  "'": "&#39;",
};
const escapeHtml = (text: string): string =>
  text.replaceAll(/[&<>"']/g, (character) => ESCAPES[character] ?? "");
