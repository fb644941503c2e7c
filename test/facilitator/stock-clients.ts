// Paying clients as users write them with the published packages; examples in the docs use these lines.
import { wrapAxiosWithPayment, x402Client as olderClient } from "@x402/axios";
import { ExactEvmScheme, toClientEvmSigner } from "@x402/evm";
import { UptoEvmScheme } from "@x402/evm/upto/client";
import { wrapFetchWithPayment, x402Client } from "@x402/fetch";
import { create } from "axios";
import type { Address, LocalAccount, PublicClient } from "viem";

interface Paid {
  status: number;
  body: unknown;
  /** The receipt header. */
  receipt: string;
  /** The proof that was sent, for replays. */
  proof: string;
}
interface ClientOptions {
  account: LocalAccount;
  network: `${string}:${string}`;
  usdc: Address;
  /** Reads the chain for the client: allowances, and nonces of the token's permit. */
  reader?: PublicClient;
}
type PayingClient = (url: string) => Promise<Paid>;

export function fetchClient({ account, network, usdc, reader }: ClientOptions): PayingClient {
  const signer = reader ? toClientEvmSigner(account, reader) : account;
  const client = new x402Client()
    .register(network, new ExactEvmScheme(signer))
    .register(network, new UptoEvmScheme(signer))
    // Clients since 2.23 refuse unknown assets: this allows Arc's USDC.
    .setSpendControls({
      allowedAssets: [{ network, asset: usdc, maxAmountPerPayment: "1000000" }],
    });
  let proof = "";
  const pay = wrapFetchWithPayment(async (input, init) => {
    const request = new Request(input, init);
    proof = request.headers.get("payment-signature") ?? proof;
    return fetch(request);
  }, client);
  return async (url) => {
    const response = await pay(url);
    return {
      status: response.status,
      body: await response.json(),
      receipt: response.headers.get("payment-response") ?? "",
      proof,
    };
  };
}

export function axiosClient({ account, network, reader }: ClientOptions): PayingClient {
  const signer = reader ? toClientEvmSigner(account, reader) : account;
  const client = new olderClient()
    .register(network, new ExactEvmScheme(signer))
    .register(network, new UptoEvmScheme(signer));
  const api = wrapAxiosWithPayment(create({ validateStatus: (status) => status === 200 }), client);
  return async (url) => {
    const response = await api.get<unknown>(url);
    return {
      status: response.status,
      body: response.data,
      receipt: String(response.headers["payment-response"]),
      proof: String(response.config.headers["PAYMENT-SIGNATURE"]),
    };
  };
}
