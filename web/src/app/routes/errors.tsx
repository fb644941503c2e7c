import { Text } from "@mantine/core";
import type { ReactNode } from "react";
import { Link } from "react-router";
import { PageHeader } from "../../components/PageHeader.tsx";
import { Catalogue } from "../../features/developers/Catalogue.tsx";

export default function ErrorsScreen(): ReactNode {
  return (
    <>
      <PageHeader
        above={
          <Text span c="dimmed" size="sm">
            <Link className="link-alone" to="/developers">
              Developers
            </Link>
          </Text>
        }
        title="Error catalogue"
        lead="Every error has one of these codes, a one-sentence explanation and the request id."
      />
      <Catalogue />
    </>
  );
}
