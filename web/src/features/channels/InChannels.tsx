import { Button, Group, Stack } from "@mantine/core";
import { useQuery } from "@tanstack/react-query";
import { type ReactNode, useState } from "react";
import { durationText } from "../../../../packages/rules/src/kinds.ts";
import { Note } from "../../components/Layout.tsx";
import { Money } from "../../components/Money.tsx";
import { channelTotalQuery } from "./api.ts";
import { CloseDialog, type ToClose } from "./CloseDialog.tsx";

/** Before a withdrawal: what is not in the wallet now, and when it can follow. */
export function InChannels({ agentId }: { agentId: string }): ReactNode {
  const { data: total } = useQuery(channelTotalQuery(agentId));
  const [closing, setClosing] = useState<ToClose>();
  if (!total || total.channels === 0) return null;
  const { channels, open, held, longestDelaySeconds: delaySeconds } = total;
  const delay = durationText(BigInt(delaySeconds));
  return (
    <Note>
      <Stack gap="xs">
        <p>
          <Money amount={held} /> more is in{" "}
          {channels === 1 ? "a payment channel" : `${channels} payment channels`}.{" "}
          {open > 0
            ? `It can be withdrawn after you close ${channels === 1 ? "it" : "them"}: in about a minute, and at most ${delay} and a few minutes later.`
            : `It is on its way back, and can be withdrawn at most ${delay} and a few minutes after it was closed.`}
        </p>
        {open > 0 && (
          <Group>
            <Button
              size="xs"
              onClick={() => {
                setClosing({ channels: open, delaySeconds });
              }}
            >
              {open === 1 ? "Close the channel" : "Close all channels"}
            </Button>
          </Group>
        )}
      </Stack>
      <CloseDialog
        agentId={agentId}
        closing={closing}
        onClose={() => {
          setClosing(undefined);
        }}
      />
    </Note>
  );
}
