import { type ReactNode, useState } from "react";
import { Dialog } from "../../components/Dialog.tsx";
import { Muted, Stack } from "../../components/Layout.tsx";
import { Segmented } from "../../components/Segmented.tsx";
import { Select } from "../../components/Select.tsx";
import type { Agent } from "../../lib/wire.ts";
import { useInfo, useNetwork } from "../../shared/info.ts";
import { Faucet } from "./Faucet.tsx";
import { FundFromWallet } from "./FundFromWallet.tsx";
import { WholeAddress } from "./WholeAddress.tsx";

type Way = "wallet" | "faucet" | "address";

export function FundDialog({
  agent,
  opened,
  onClose,
}: {
  agent: Agent;
  opened: boolean;
  onClose: () => void;
}): ReactNode {
  const info = useInfo();
  const [networkId, setNetworkId] = useState(agent.network);
  const network = useNetwork(networkId);
  const networks = info?.networks ?? [];
  const [way, setWay] = useState<Way>();
  const isLocal = info?.localWorld === true;
  const chosen = way ?? (isLocal ? "faucet" : "wallet");
  const options = [
    ...(isLocal ? [{ value: "faucet", label: "Faucet" } as const] : []),
    { value: "wallet", label: "Your wallet" } as const,
    { value: "address", label: "Address" } as const,
  ];
  return (
    <Dialog opened={opened} onClose={onClose} title={`Fund ${agent.name}`}>
      <Stack gap={4}>
        <Segmented label="How to fund" value={chosen} onChange={setWay} options={options} />
        {chosen !== "faucet" && networks.length > 1 && (
          <Select
            label="Network"
            value={networkId}
            onChange={setNetworkId}
            options={networks.map(({ id, name }) => ({
              value: id,
              label: id === agent.network ? `${name} (the agent's own)` : name,
            }))}
          />
        )}
        {chosen === "faucet" && <Faucet agent={agent} />}
        {chosen === "wallet" && info && network && (
          <FundFromWallet key={network.id} agent={agent} info={info} network={network} />
        )}
        {chosen === "address" && (
          <Stack gap={3}>
            <p>
              Send USDC on <strong>{network?.name}</strong> to this address, from any wallet or
              exchange.{" "}
              {networks.length > 1
                ? `The address is the same on every network, and USDC stays on the network where you send it.`
                : `Purser cannot see or move USDC that you send on another network.`}
            </p>
            <WholeAddress agent={agent} network={networkId} />
            <Muted>The balance updates within seconds.</Muted>
          </Stack>
        )}
      </Stack>
    </Dialog>
  );
}
