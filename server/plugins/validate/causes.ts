/**
 * Why nobody pays, pays into nothing, or finds a paid API: every cause that the validator reports. `docs/reference/validate.md`
 * is made from this table, and `test/marketplace/validate.test.ts` makes each cause with a real server.
 */
import type { Finding } from "../../schemas/validate.ts";

interface Cause {
  severity: Finding["severity"];
  /** One sentence, in our own words. */
  message: string;
  /** The line to change, where it is the same for everybody. */
  fix?: string;
}

const REACHING = {
  url_has_credentials: {
    severity: "error",
    message: "The URL contains a user or a password, which clients do not send.",
    fix: "Publish the URL without them",
  },
  not_https: {
    severity: "error",
    message: "The URL is not https, so that anybody on the way can change the payee.",
  },
  url_blocked: {
    severity: "error",
    message:
      "The address is private, or its port is not for HTTP, so that wallets on the internet do not reach it.",
    fix: "Serve it at a public https address",
  },
  name_unknown: {
    severity: "error",
    message: "The host's name has no address in DNS.",
    fix: "Add an A or AAAA record for the host",
  },
  certificate_invalid: {
    severity: "error",
    message: "The host's certificate is not valid for this name and time.",
    fix: "Renew the certificate, and send its whole chain",
  },
  unreachable: {
    severity: "error",
    message: "No connection was possible, or the answer was not HTTP.",
  },
  timed_out: {
    severity: "error",
    message: "There was no complete answer in time.",
    fix: "Answer the 402 before any slow work",
  },
  answer_too_large: {
    severity: "error",
    message: "The answer without a payment is larger than 256 KiB.",
    fix: "Answer the 402 with a short body",
  },
  headers_too_large: {
    severity: "error",
    message: "The headers of the answer are larger than 64 KiB.",
    fix: "Remove long descriptions and schemas from PAYMENT-REQUIRED",
  },
  answer_unreadable: {
    severity: "error",
    message: "The answer is compressed in a way that cannot be read.",
    fix: "Content-Encoding: gzip",
  },
} as const satisfies Record<string, Cause>;

const STATUS = {
  free: {
    severity: "error",
    message: "It answers without a payment.",
    fix: "Put the payment middleware before the route",
  },
  redirects: {
    severity: "error",
    message: "It redirects, and clients do not take a payment to another URL.",
    fix: "Publish the URL that answers 402 itself",
  },
  not_found: {
    severity: "error",
    message: "There is nothing at this URL for this method.",
  },
  wrong_method: {
    severity: "error",
    message: "The URL does not take this method.",
  },
  needs_login: {
    severity: "error",
    message:
      "It demands a login before a payment, which a client with only a wallet does not have.",
    fix: "Answer 402 before you check credentials",
  },
  too_many_requests: {
    severity: "error",
    message: "It limits the rate of requests before it shows its price.",
    fix: "Answer 402 before you count requests",
  },
  server_error: {
    severity: "error",
    message: "The server failed.",
  },
  other_status: {
    severity: "error",
    message: "The request is refused before the price is shown.",
    fix: "Answer 402 before you check parameters",
  },
  post_needs_body: {
    severity: "warning",
    message:
      "A POST without a body is refused before the price is shown, and indexers send no body.",
    fix: "Answer 402 before you check the body",
  },
} as const satisfies Record<string, Cause>;

const TERMS = {
  no_terms: {
    severity: "error",
    message: "The 402 has no PAYMENT-REQUIRED header, and its body is no offer of version 1.",
    fix: "PAYMENT-REQUIRED: <base64 of the JSON offer>",
  },
  v2_in_body: {
    severity: "error",
    message: "The offer of version 2 is in the body; clients read it from the header.",
    fix: "PAYMENT-REQUIRED: <base64 of the JSON in your body>",
  },
  header_twice: {
    severity: "error",
    message: "PAYMENT-REQUIRED is sent more than once.",
    fix: "Send it once, with all offers in accepts",
  },
  header_unreadable: {
    severity: "error",
    message: "PAYMENT-REQUIRED is not base64 of JSON.",
    fix: 'Buffer.from(JSON.stringify(offer)).toString("base64")',
  },
  terms_too_deep: {
    severity: "error",
    message: "The offer is nested deeper than 64 levels.",
    fix: "Shorten the schemas in extensions",
  },
  wrong_version: {
    severity: "error",
    message: "x402Version must be 2 in the header, and 1 in the body.",
  },
  no_accepts: {
    severity: "error",
    message: "`accepts` is not a list with at least one offer.",
    fix: '"accepts": [{ ... }]',
  },
  too_many_accepts: {
    severity: "error",
    message: "`accepts` has more than 64 offers.",
    fix: "Offer fewer networks and schemes",
  },
  offers_not_checked: {
    severity: "note",
    message: "Only the first 16 offers were checked.",
  },
  v1_only: {
    severity: "note",
    message: "There is only an offer of version 1.",
    fix: "PAYMENT-REQUIRED: <base64 of an offer of version 2>",
  },
  v2_only: {
    severity: "note",
    message: "Clients of version 1 find no offer in the body.",
    fix: '{ "x402Version": 1, "accepts": [ ... ] } as the body',
  },
  versions_differ: {
    severity: "warning",
    message:
      "The offers of version 1 and version 2 differ in payee, price or asset for the same network.",
  },
  header_over_limit: {
    severity: "error",
    message: "PAYMENT-REQUIRED is longer than 15 KiB, and clients on Node read 16 KiB of headers.",
    fix: "Move long schemas out of extensions",
  },
  header_long: {
    severity: "warning",
    message: "PAYMENT-REQUIRED is longer than 8 KiB, the limit of many proxies and servers.",
    fix: "Move long schemas out of extensions",
  },
} as const satisfies Record<string, Cause>;

const OFFERS = {
  offer_not_object: { severity: "error", message: "The offer is not a JSON object." },
  field_missing: {
    severity: "error",
    message: "A required field is missing or has the wrong type.",
  },
  v1_field_missing: {
    severity: "warning",
    message:
      "Clients of version 1 refuse the whole 402 unless every offer has a description, a mimeType and a resource URL.",
  },
  v1_price_field: {
    severity: "error",
    message: "`maxAmountRequired` belongs to version 1; version 2 has `amount`.",
  },
  v2_price_field: {
    severity: "error",
    message: "`amount` belongs to version 2; version 1 has `maxAmountRequired`.",
  },
  v1_network_name: {
    severity: "error",
    message: "Version 2 names networks by their CAIP-2 id.",
  },
  v2_network_name: {
    severity: "error",
    message: "Version 1 names networks by words such as base.",
  },
  network_unknown: {
    severity: "note",
    message: "This service does not know the network, and checked little of this offer.",
  },
  network_not_here: {
    severity: "note",
    message:
      "This service is not set up for the network: its agents do not pay this offer, and no payment was simulated.",
  },
  scheme_unknown: {
    severity: "warning",
    message: "The scheme is none of exact, upto and batch-settlement, which wallets know.",
    fix: '"scheme": "exact"',
  },
  gateway: {
    severity: "warning",
    message:
      "The offer is for Circle's Gateway, which pays from a deposit in Circle's contract; a plain wallet cannot pay it.",
    fix: 'Add an offer with "scheme": "exact" and the token\'s own domain in extra',
  },
  auth_capture: {
    severity: "warning",
    message:
      "The offer pays into an escrow contract (auth-capture), which agents of this service and clients with default settings do not pay.",
    fix: 'Add an offer with "scheme": "exact"',
  },
  asset_invalid: {
    severity: "error",
    message: "`asset` is not the address of a token.",
  },
  asset_of_other_network: {
    severity: "error",
    message: "`asset` is the USDC of a different network.",
  },
  asset_not_usdc: {
    severity: "warning",
    message: "`asset` is not the network's USDC, and many wallets refuse other tokens.",
  },
  asset_no_contract: {
    severity: "error",
    message: "There is no contract at the address in `asset`.",
  },
  domain_missing: {
    severity: "error",
    message: "`extra` lacks the token's EIP-712 name or version, so that nobody can sign.",
  },
  domain_name_wrong: {
    severity: "error",
    message:
      "`extra.name` is not the token's EIP-712 name, so that the token refuses every signature.",
  },
  domain_version_wrong: {
    severity: "error",
    message:
      "`extra.version` is not the token's EIP-712 version, so that the token refuses every signature.",
  },
  domain_mismatch: {
    severity: "error",
    message:
      "The token's DOMAIN_SEPARATOR does not fit `extra`, so that the token refuses every signature.",
  },
  extra_contradicts: {
    severity: "warning",
    message: "`extra` describes something other than a plain payment in this token.",
  },
  flow_unknown: {
    severity: "warning",
    message: "`extra.paymentFlow` is none of authorization, upfront and escrow.",
    fix: "Remove extra.paymentFlow",
  },
  payee_invalid: {
    severity: "error",
    message: "`payTo` is not an address of this network.",
  },
  payee_checksum: {
    severity: "error",
    message: "`payTo` has a wrong checksum: a character is wrong, or it has the wrong case.",
    fix: "Copy the address again from your wallet",
  },
  payee_zero: {
    severity: "error",
    message: "`payTo` is the zero address, to which the token sends nothing.",
    fix: '"payTo": "<your address>"',
  },
  payee_burn: {
    severity: "error",
    message: "`payTo` is an address that nobody has a key for: the money would be lost.",
    fix: '"payTo": "<your address>"',
  },
  payee_is_token: {
    severity: "error",
    message: "`payTo` is the token itself: the money would be lost.",
    fix: '"payTo": "<your address>"',
  },
  payee_is_contract: {
    severity: "note",
    message: "`payTo` is a contract. Make sure that it can send USDC on this network.",
  },
  price_not_text: {
    severity: "error",
    message: "The price is a JSON number; the protocol has a string of digits.",
  },
  price_not_atomic: {
    severity: "error",
    message: "The price is not a whole number of the token's smallest units.",
  },
  price_zero: {
    severity: "error",
    message: "The price is zero.",
    fix: "Serve it without 402",
  },
  price_decimals: {
    severity: "error",
    message: "The price is over a million USDC: it seems to count 18 decimals, and USDC has 6.",
  },
  price_above_default: {
    severity: "warning",
    message: "The price is over 1 USDC, the most that stock clients pay without a setting.",
    fix: "Tell buyers to set spendControls.maxAmountPerPayment",
  },
  price_below_minimum: {
    severity: "warning",
    message: "The price is below the least that this facilitator settles, because gas costs more.",
  },
  timeout_too_short: {
    severity: "error",
    message: "maxTimeoutSeconds leaves less than 6 seconds, and facilitators refuse such payments.",
    fix: '"maxTimeoutSeconds": 60',
  },
  timeout_short: {
    severity: "warning",
    message: "maxTimeoutSeconds is below 30, and slow answers or blocks make payments expire.",
    fix: '"maxTimeoutSeconds": 60',
  },
  timeout_long: {
    severity: "note",
    message:
      "maxTimeoutSeconds is over an hour: buyers sign a payment that stays open so long, or shorten it.",
    fix: '"maxTimeoutSeconds": 300',
  },
} as const satisfies Record<string, Cause>;

const RESOURCE = {
  resource_missing: {
    severity: "warning",
    message: "The offer does not name its `resource`, which marketplaces need.",
  },
  resource_invalid: {
    severity: "warning",
    message: "`resource.url` is not an absolute http(s) URL.",
  },
  resource_differs: {
    severity: "warning",
    message:
      "`resource.url` has a different host or path, so that marketplaces do not list this URL.",
  },
  resource_not_https: {
    severity: "warning",
    message: "`resource.url` is http although this URL is https: a proxy hides the scheme.",
  },
  resource_private: {
    severity: "warning",
    message: "`resource.url` is a private address, which nobody on the internet reaches.",
  },
  description_missing: {
    severity: "note",
    message: "There is no description, so that buyers and searches do not know what is sold.",
    fix: '"description": "What one call returns"',
  },
  mime_missing: {
    severity: "note",
    message: "There is no mimeType of the paid answer.",
    fix: '"mimeType": "application/json"',
  },
  text_hidden: {
    severity: "warning",
    message: "Texts of the offer contain invisible or control characters, which are removed.",
  },
  text_markup: {
    severity: "warning",
    message: "Texts of the offer contain markup, which is shown as plain text.",
  },
  bazaar_missing: {
    severity: "note",
    message: "There is no bazaar extension, so that a payment does not list the API by itself.",
    fix: 'extensions: { ...declareDiscoveryExtension({ output: { example: { sky: "clear" } } }) }',
  },
  bazaar_refused: {
    severity: "warning",
    message: "The bazaar extension announces something that is not listed.",
  },
  bazaar_no_output: {
    severity: "note",
    message: "The bazaar extension shows no example of the paid answer.",
    fix: '"output": { "example": { ... } }',
  },
} as const satisfies Record<string, Cause>;

const HOST = {
  well_known_missing: {
    severity: "note",
    message: "The host has no `/.well-known/x402`, with which catalogues find all its paid URLs.",
    fix: '{ "version": 1, "resources": ["https://..."] }',
  },
  well_known_broken: {
    severity: "warning",
    message: "Catalogues cannot read this part of `/.well-known/x402`.",
    fix: '{ "version": 1, "resources": ["https://..."] }',
  },
  well_known_other_host: {
    severity: "warning",
    message: "`/.well-known/x402` names a URL of another origin, which is not read.",
    fix: "Serve the document at the other host too",
  },
  well_known_omits: {
    severity: "note",
    message: "`/.well-known/x402` does not name this URL.",
  },
  well_known_long: {
    severity: "note",
    message: "`/.well-known/x402` names more than 50 resources; only the first 50 are read here.",
    fix: "Name the most important ones first",
  },
} as const satisfies Record<string, Cause>;

const BROWSERS = {
  cors_none: {
    severity: "note",
    message: "Web pages of other origins cannot read the 402.",
    fix: "Access-Control-Allow-Origin: *",
  },
  cors_hidden: {
    severity: "warning",
    message: "Web pages may read the answer, but not its PAYMENT-REQUIRED header.",
    fix: "Access-Control-Expose-Headers: PAYMENT-REQUIRED, PAYMENT-RESPONSE",
  },
  cors_preflight: {
    severity: "warning",
    message: "Web pages may read the 402, but may not send the payment.",
    fix: "Access-Control-Allow-Headers: PAYMENT-SIGNATURE, X-PAYMENT, Content-Type",
  },
  cacheable: {
    severity: "warning",
    message: "The 402 may be stored by caches, which then show it to buyers who paid.",
    fix: "Cache-Control: no-store",
  },
  from_cache: {
    severity: "warning",
    message: "The 402 came from a cache in front of the server.",
    fix: "Cache-Control: no-store",
  },
  terms_vary: {
    severity: "warning",
    message:
      "Two requests got a different payee, asset or network: a marketplace pins them, and refuses the change.",
  },
} as const satisfies Record<string, Cause>;

const PAYING = {
  facilitator_fee: {
    severity: "note",
    message:
      "Settled through this facilitator, each payment adds a fee to what `payTo` owes it. Other facilitators have their own terms.",
  },
  mpp_refused: {
    severity: "warning",
    message: "A challenge of WWW-Authenticate: Payment (MPP) cannot be paid.",
  },
  payee_refused: {
    severity: "error",
    message: "The token refuses transfers to `payTo`, for example because its issuer blocked it.",
    fix: '"payTo": "<another address>"',
  },
  simulation_refused: {
    severity: "error",
    message: "A simulated payment was refused.",
  },
  chain_not_read: {
    severity: "note",
    message: "The network could not be read now, so that nothing was checked there.",
  },
} as const satisfies Record<string, Cause>;

export const GROUPS: Record<string, Record<string, Cause>> = {
  "Reaching the URL": REACHING,
  "The answer without a payment": STATUS,
  "The terms of the 402": TERMS,
  "Each offer": OFFERS,
  "Resource and listing": RESOURCE,
  "The host's document": HOST,
  "Browsers and caches": BROWSERS,
  "The payment itself": PAYING,
};

const CAUSES = {
  ...REACHING,
  ...STATUS,
  ...TERMS,
  ...OFFERS,
  ...RESOURCE,
  ...HOST,
  ...BROWSERS,
  ...PAYING,
};
export type CauseCode = keyof typeof CAUSES;

interface Details {
  /** Of this seller, instead of the cause's own. */
  fix?: string | undefined;
  offer?: number;
  /** More in our own words. */
  because?: string | undefined;
  /** The seller's text, already plain and short. */
  found?: string | undefined;
}

export function finding(code: CauseCode, where: string, details: Details = {}): Finding {
  const cause: Cause = CAUSES[code];
  const { fix = cause.fix ?? null, offer = null, because, found } = details;
  return {
    code,
    severity: cause.severity,
    message: because === undefined ? cause.message : `${cause.message} ${because}`,
    where,
    fix,
    offer,
    ...(found !== undefined && found !== "" && { thirdParty: { untrusted: true, found } }),
  };
}
