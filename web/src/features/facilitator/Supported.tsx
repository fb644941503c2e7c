import { useQuery } from "@tanstack/react-query";
import type { ReactNode } from "react";
import { Address } from "../../components/Address.tsx";
import { KeyValues, Section } from "../../components/Layout.tsx";
import { QueryStatus } from "../../components/QueryStatus.tsx";
import { Skeleton } from "../../components/Skeleton.tsx";
import type { ServiceInfo } from "../../lib/wire.ts";
import { findNetwork } from "../../shared/info.ts";
import { supportedQuery } from "./api.ts";

export function Supported({ info }: { info: ServiceInfo }): ReactNode {
  const query = useQuery(supportedQuery);
  const { data } = query;
  return (
    <Section
      title="Supported payments"
      hint="Schemes and networks for USDC payments. The payer needs no gas."
    >
      <QueryStatus query={query} what="supported payments">
        <Skeleton count={3} />
      </QueryStatus>
      {data && (
        <KeyValues
          rows={[
            ...data.kinds.map(
              (kind) =>
                [
                  `${kind.scheme}, v${kind.x402Version}`,
                  `${findNetwork(info, kind.network)?.name ?? kind.network} (${kind.network})`,
                ] as const,
            ),
            ...info.networks.map(
              (network) =>
                [
                  `USDC on ${network.name}`,
                  <Address key={network.id} value={network.usdc.address} />,
                ] as const,
            ),
            data.extensions.length > 0 && (["Extensions", data.extensions.join(", ")] as const),
          ]}
        />
      )}
    </Section>
  );
}
