import { Flex } from "@mantine/core";
import type { ReactNode } from "react";
import { CopyButton } from "./CopyButton.tsx";

/** A value to copy, with its copy button always beside it. */
export const CopyText = ({
  value,
  what,
  shown,
}: {
  value: string;
  what: string;
  shown?: string;
}): ReactNode => (
  <Flex component="span" display="inline-flex" align="center" gap={2} maw="100%">
    <code>{shown ?? value}</code>
    <CopyButton value={value} what={what} />
  </Flex>
);
